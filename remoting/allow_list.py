"""Allow-lists of client addresses for request codes: `adminAllow`, `registerAllow`.

A list has networks in CIDR form and single addresses, IPv4 and IPv6, with commas between. An empty list lets each address
through, as Apache does. What counts is the address that the connection comes from: of a proxy its own.
"""

import ipaddress
import logging
from collections.abc import Iterable
from typing import Any, Final

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, Handler, RemotingError, Route
from pocketmq.runtime.refusal_log import RefusalLog

VALUE_SIZE_MAX: Final = 200
"""Characters of a bad entry that its error shows."""
NETWORKS_MAX: Final = 256

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(key: str, text: str) -> tuple[Network, ...]:
    """The networks that the value `text` of `key` names. Raises ValueError naming key and entry."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    if len(entries) > NETWORKS_MAX:
        raise ValueError(f"{key}: {len(entries)} entries, the limit is {NETWORKS_MAX}")
    found = []
    for entry in entries:
        try:
            found.append(ipaddress.ip_network(entry, strict=False))
        except ValueError:
            shown = entry[:VALUE_SIZE_MAX]
            raise ValueError(
                f"{key}={shown}: expected addresses or networks with , between, as 10.0.0.0/8,::1,2001:db8::/32"
            ) from None
    return tuple(found)


def restricted(table: dict[int, Route], codes: Iterable[int], key: str, text: str, log: logging.Logger) -> dict[int, Route]:
    """`table` with its `codes` served to the addresses that `text` names; as it is where `text` names none."""
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
