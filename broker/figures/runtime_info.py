"""The table of GET_BROKER_RUNTIME_INFO: all keys of 4.9.4, and from 5.x its spelling of getTransferedTps and its timer keys.
Brokers with slaves, and slaves, add keys of replication.

Tools require every key to be present. Keys without a meaning here (thread pools, page cache lock) have the value of an idle
broker.
"""

import shutil
from typing import Final

from pocketmq.broker.figures.ha_figures import ha_lines
from pocketmq.broker.figures.timer_figures import timer_lines
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import VERSION, VERSION_NAME
from pocketmq.store.format.record import store_timestamp_of

_IDLE_POOLS: Final = {
    "sendThreadPoolQueueCapacity": "10000",
    "pullThreadPoolQueueCapacity": "100000",
    "queryThreadPoolQueueCapacity": "20000",
    "EndTransactionThreadPoolQueueCapacity": "100000",
    "EndTransactionQueueSize": "0",
    **{f"{pool}ThreadPoolQueue{what}": "0" for pool in ("send", "pull", "query") for what in ("Size", "HeadWaitTimeMills")},
}
_DISTRIBUTION: Final = (
    "[0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 "
    "[5~10s]:0 [10s~]:0 "
)


def runtime_info(services: Services) -> dict[str, str]:
    """Return all keys with their present values as text."""
    return {
        **_IDLE_POOLS, **_identity(services), **_rates(services), **_files(services), **_schedule(services),
        **timer_lines(services), **ha_lines(services),
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
        # Single puts are not timed, because measuring would cost more than the put.
        "putMessageDistributeTime": f"[<=0ms]:{put.times} {_DISTRIBUTION}",
        "putMessageEntireTimeMax": "0",
        "getMessageEntireTimeMax": "0",
        "putLatency99": "0.00",
        "putLatency999": "0.00",
        "pageCacheLockTimeMills": "0",
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
        "remainTransientStoreBufferNumbs": "2147483647",
        "dispatchMaxBuffer": "0",
        "dispatchBehindBytes": "0",
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
