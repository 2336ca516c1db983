"""The two ports of a broker: its own port, and the VIP channel's port, two below it."""

import socket
from typing import Final

_ATTEMPTS: Final = 8


def reserve_ports(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to `port` (0: any free one) and, if it is free, to port - 2.

    Bound without listening, they reserve the ports for the listeners. Raises OSError when `port` itself is taken.
    """
    for attempts_left in range(_ATTEMPTS if port == 0 else 1, 0, -1):
        main = _bind(host, port)
        chosen = int(main.getsockname()[1])
        try:
            if chosen - 2 <= 0:
                return [main]
            return [main, _bind(host, chosen - 2)]
        except OSError:
            if attempts_left == 1:
                return [main]
            main.close()
    raise AssertionError("the last attempt returns")


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
