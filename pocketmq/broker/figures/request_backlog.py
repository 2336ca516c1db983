"""Requests that were read and are not served yet: the counterpart of the queues of Apache's thread pools.

There are no such pools: requests are served as they are read, in one thread. Only those of connections with many requests
wait for their share of the loop (`remoting.fair_share`). They wait at their connections, which are not read meanwhile.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pocketmq.remoting.channels import Channels
from pocketmq.remoting.codes import ROCKETMQ, RequestCode
from pocketmq.remoting.frame import Frame

COUNTED_MAX: Final = 100_000
"""Number of requests after which no further connection is counted."""
_CODE: Final = re.compile(rb'"code"\s*:\s*(\d{1,9})')
_POOLS: Final[Mapping[int, str]] = {
    RequestCode.SEND_MESSAGE: "send", RequestCode.SEND_MESSAGE_V2: "send", RequestCode.SEND_BATCH_MESSAGE: "send",
    RequestCode.CONSUMER_SEND_MSG_BACK: "send", RequestCode.PULL_MESSAGE: "pull", RequestCode.POP_MESSAGE: "pull",
    RequestCode.LITE_PULL_MESSAGE: "litePull", RequestCode.ACK_MESSAGE: "ack", RequestCode.BATCH_ACK_MESSAGE: "ack",
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: "ack", RequestCode.QUERY_MESSAGE: "query",
    RequestCode.VIEW_MESSAGE_BY_ID: "query", RequestCode.END_TRANSACTION: "EndTransaction",
}  # fmt: skip


class Backlog(NamedTuple):
    """Number of requests, and the longest time in ms that one of them has waited."""

    requests: int = 0
    wait_ms: int = 0


def request_backlog(channels: Channels | None) -> Mapping[str, Backlog]:
    """Return the requests that wait by the names of Apache's pools; `litePull` and `ack` are 5.x's."""
    found = dict.fromkeys(_POOLS.values(), Backlog())
    if channels is None:
        return found
    now_s, looked_at = channels.timers.clock.monotonic(), 0
    for channel in channels.open:
        left = channel.frames_left
        for pool in _pools(left):
            before = found[pool]
            # Nothing is read while requests are left, so they came with the last data, or before it.
            wait_ms = max(before.wait_ms, round((now_s - channel.last_active) * 1000))
            found[pool] = Backlog(before.requests + 1, wait_ms)
        looked_at += len(left)
        if looked_at > COUNTED_MAX:
            break
    return found


def _pools(frames: Iterable[Frame]) -> Iterable[str]:
    for serialize_type, header, _ in frames:
        if serialize_type == ROCKETMQ:
            code = int.from_bytes(header[:2], "big")
        else:
            match = _CODE.search(header)
            code = 0 if match is None else int(match.group(1))
        pool = _POOLS.get(code)
        if pool is not None:
            yield pool
