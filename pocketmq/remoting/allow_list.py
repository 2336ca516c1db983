"""Allow-lists of client addresses for request codes: `adminAllow`, `registerAllow`.

A list contains networks in CIDR form and single addresses, IPv4 and IPv6, separated by commas. An empty list allows every
address, as Apache does. The address checked is the remote address of the connection: behind a proxy, that of the proxy.
"""

import ipaddress
import logging
from collections.abc import Iterable
from typing import Any, Final

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, Handler, RemotingError, Route
from pocketmq.runtime.lifecycle import StartError
from pocketmq.runtime.refusal_log import RefusalLog

VALUE_SIZE_MAX: Final = 200
"""Maximum number of characters of an invalid entry shown in an error."""
NETWORKS_MAX: Final = 256

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(key: str, text: str) -> tuple[Network, ...]:
    """Parse the value `text` of config key `key`. Raises StartError with key and entry."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    if len(entries) > NETWORKS_MAX:
        raise StartError(f"{key}: {len(entries)} entries, the limit is {NETWORKS_MAX}")
    found = []
    for entry in entries:
        try:
            found.append(ipaddress.ip_network(entry, strict=False))
        except ValueError:
            shown = entry[:VALUE_SIZE_MAX]
            raise StartError(
                f"{key}={shown}: expected addresses or networks separated by commas, such as 10.0.0.0/8,::1,2001:db8::/32"
            ) from None
    return tuple(found)


def restricted(table: dict[int, Route], codes: Iterable[int], key: str, text: str, log: logging.Logger) -> dict[int, Route]:
    """Return `table` with `codes` served only to the addresses in `text`; unchanged if `text` is empty."""
    allowed = networks(key, text)
    if not allowed:
        return table
    refusals = RefusalLog(log)
    guarded = {code: route._replace(handler=_guarded(route, key, allowed, refusals)) for code, route in table.items()}
    return table | {code: guarded[code] for code in codes if code in guarded}


def _guarded(route: Route, key: str, allowed: tuple[Network, ...], refusals: RefusalLog) -> Handler:
    handler = route.handler

    def serve(services: Any, request: Request[Any]) -> Response | Deferred | None:
        host = request.channel.remote_host
        address = ipaddress.ip_address(host)
        if not any(address in network for network in allowed):
            remark = f"request code {route.code} is not served to {host}: it is not in {key}"
            refusals.refused((host, route.code), f"refused: {remark}")
            raise RemotingError(ResponseCode.NO_PERMISSION, remark)
        return handler(services, request)

    return serve
