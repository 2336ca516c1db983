"""The table of GET_BROKER_RUNTIME_INFO: all keys of 4.9.4 and of 5.5.0 (its spelling of getTransferedTps, pools, timers).
Brokers with slaves, and slaves, add keys of replication.

Tools require every key to be present. A key without an exact counterpart here has the closest equivalent as its value:

    ...ThreadPoolQueueSize, ...HeadWaitTimeMills     requests that were read and are not served yet, and the longest wait
    ...ThreadPoolQueueCapacity                       no limit: the number of such requests is limited per connection only
    putMessageDistributeTime, putLatency99, ...999   of the last minute; a message counts as `stats.measurements` says
    pageCacheLockTimeMills                           the longest write of the log to the page cache, of the last minute
    remainTransientStoreBufferNumbs                  no limit, as at Apache's brokers without a transient store pool
    dispatchMaxBuffer                                the largest number of records dispatched at once
"""

import re
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pocketmq.broker.figures.ha_figures import ha_lines
from pocketmq.broker.figures.timer_figures import timer_lines
from pocketmq.broker.services import Services
from pocketmq.metrics.histogram import quantile_s
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.codes import ROCKETMQ, VERSION, VERSION_NAME, RequestCode
from pocketmq.remoting.frame import Frame
from pocketmq.store.format.record import store_timestamp_of

_NO_LIMIT: Final = "2147483647"
_DISTRIBUTION: Final = (
    ("<=0ms", 0.001), ("0~10ms", 0.01), ("10~50ms", 0.05), ("50~100ms", 0.1), ("100~200ms", 0.2), ("200~500ms", 0.5),
    ("500ms~1s", 1.0), ("1~2s", 2.0), ("2~3s", 3.0), ("3~4s", 4.0), ("4~5s", 5.0), ("5~10s", 10.0),
)  # fmt: skip
"""Apache's buckets and their upper bounds in seconds. Apache counts whole ms: the first bucket has puts of less than 1."""
_DISTRIBUTION_REST: Final = "10s~"
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


def runtime_info(services: Services) -> dict[str, str]:
    """Return all keys with their present values as text."""
    return {
        **_waiting(services), **_identity(services), **_rates(services), **_put_times(services), **_files(services),
        **_schedule(services), **_start(services), **timer_lines(services), **ha_lines(services),
    }  # fmt: skip


def _identity(services: Services) -> dict[str, str]:
    now_ms = services.clock.message_time_ms()
    return {
        "brokerVersionDesc": VERSION_NAME,
        "brokerVersion": str(VERSION),
        "brokerActive": "true" if services.is_master else "false",  # 5.x's key
        "bootTimestamp": str(services.stats.boot_time_ms),
        "startAcceptSendRequestTimeStamp": str(services.config.start_accept_send_request_time_stamp),
        "runtime": _duration(max(now_ms - services.stats.boot_time_ms, 0)),
    }


def _duration(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _rates(services: Services) -> dict[str, str]:
    stats = services.stats
    put = stats.put_total
    rates = {name: " ".join(map(str, values)) for name, values in stats.tps().items()}
    return {
        **rates,
        "getTransferredTps": rates["getTransferedTps"],
        **{name: str(value) for name, value in stats.day_totals().items()},
        "putMessageTimesTotal": str(max(put.times, 1)),
        "putMessageFailedTimes": str(stats.put_failed_times),
        "putMessageSizeTotal": str(put.size),
        "putMessageAverageSize": str(put.size / max(put.nums, 1)),
        "getMessageEntireTimeMax": str(round(stats.get_max_s * 1000)),
    }


def _put_times(services: Services) -> dict[str, str]:
    measured, commit_log = services.measured, services.store.commit_log
    bounds_s, counts = measured.put_time.bounds_s, measured.recent_put_times.counts()
    return {
        "putMessageDistributeTime": _distribution(bounds_s, counts),
        "putLatency99": f"{quantile_s(bounds_s, counts, 0.99) * 1000:.2f}",
        "putLatency999": f"{quantile_s(bounds_s, counts, 0.999) * 1000:.2f}",
        "putMessageEntireTimeMax": str(round(measured.put_time.max_s * 1000)),
        "pageCacheLockTimeMills": str(round(measured.page_wait_s.maximum(commit_log.tail.longest_wait_s) * 1000)),
        "dispatchMaxBuffer": str(measured.dispatched_max),
    }


def _distribution(bounds_s: Sequence[float], counts: Sequence[int]) -> str:
    texts, position = [], 0
    for name, bound_s in _DISTRIBUTION:
        end = bisect_right(bounds_s, bound_s)
        texts.append(f"[{name}]:{sum(counts[position:end])}")
        position = end
    return " ".join([*texts, f"[{_DISTRIBUTION_REST}]:{sum(counts[position:])} "])


def _waiting(services: Services) -> dict[str, str]:
    lines = {}
    for pool, (count, wait_ms) in request_backlog(services.channels).items():
        lines[f"{pool}ThreadPoolQueueCapacity"] = _NO_LIMIT
        if pool == "EndTransaction":
            lines["EndTransactionQueueSize"] = str(count)
        else:
            lines |= {f"{pool}ThreadPoolQueueSize": str(count), f"{pool}ThreadPoolQueueHeadWaitTimeMills": str(wait_ms)}
    return lines


class Backlog(NamedTuple):
    """Number of requests, and the longest time in ms that one of them has waited."""

    requests: int = 0
    wait_ms: int = 0


def request_backlog(channels: Channels | None) -> Mapping[str, Backlog]:
    """Return the requests that wait by the names of Apache's pools; `litePull` and `ack` are 5.x's.

    There are no such pools: requests are served as they are read, in one thread. Only those of connections with many
    requests wait for their share of the loop (`remoting.fair_share`), at their connections, which are not read meanwhile.
    """
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


def _start(services: Services) -> dict[str, str]:
    """Return PocketMQ's own keys about the last start. Apache has none."""
    measured = services.measured
    return {
        "startAfter": "clean stop" if measured.started_cleanly else "crash or kill",
        "startRecoveryMs": str(round((measured.store_recovery_s + measured.timer_recovery_s) * 1000)),
        "startRepairs": str(measured.repairs),
    }


def _files(services: Services) -> dict[str, str]:
    store = services.store
    paths = store.config.commit_log_directories
    ratios = {path: _usage(services, path) for path in paths}
    first = store.message_at(store.min_physical_offset)
    return {
        "commitLogMinOffset": str(store.min_physical_offset),
        "commitLogMaxOffset": str(store.max_physical_offset),
        "commitLogDiskRatio": min(ratios.values()),
        **{f"commitLogDiskRatio_{path}": ratio for path, ratio in ratios.items()},
        "consumeQueueDiskRatio": _usage(services, store.config.store_path("consumequeue")),
        "commitLogDirCapacity": _capacity(paths[0]),
        "earliestMessageTimeStamp": str(-1 if first is None else store_timestamp_of(first)),
        "remainHowManyDataToFlush": _size(max(store.max_physical_offset - store.flushed_offset, 0)),
        "remainTransientStoreBufferNumbs": _NO_LIMIT,
        "dispatchBehindBytes": str(store.dispatch_behind_bytes),
    }


def _usage(services: Services, path: str) -> str:
    """Return the used share of a file system, 0..1."""
    try:
        return f"{services.store.disk.usage(path):.2f}"
    except OSError:
        return "0.00"


def _capacity(path: str) -> str:
    try:
        total, _, free = shutil.disk_usage(path)
    except OSError:
        total = free = 0  # a store in memory
    return f"Total : {_size(total)}, Free : {_size(free)}."


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def _schedule(services: Services) -> dict[str, str]:
    return {
        f"scheduleMessageOffset_{level}": f"{next_offset},{max_offset}"
        for level, (next_offset, max_offset) in services.schedule.progress().items()
    }
