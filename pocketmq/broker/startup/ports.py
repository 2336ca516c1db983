"""The two ports of a broker: its own port, and the VIP channel's port, two below it."""

import socket
from typing import Final

_ATTEMPTS: Final = 8


def reserve_ports(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to `port` (0: any free one) and, if it is free, to port - 2.

    They do not listen. Call `share` before the listeners bind the same ports. Raises OSError when `port` itself is taken.
    """
    for attempts_left in range(_ATTEMPTS if port == 0 else 1, 0, -1):
        # A given port may have connections of a process that has just ended, which only SO_REUSEADDR ignores. With it other
        # processes can bind the port as well, so a free port is reserved without.
        main = _bind(host, port, is_shared=port != 0)
        chosen = int(main.getsockname()[1])
        try:
            if chosen - 2 <= 0:
                return [main]
            return [main, _bind(host, chosen - 2, is_shared=port != 0)]
        except OSError:
            if attempts_left == 1:
                return [main]
            main.close()
    raise AssertionError("the last attempt returns")


def share(reserved: list[socket.socket]) -> None:
    """Let other sockets bind the same ports."""
    for one in reserved:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _bind(host: str, port: int, *, is_shared: bool) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if is_shared:
            share([bound])
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
