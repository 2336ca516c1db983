"""Running info of consumers (GET_CONSUMER_RUNNING_INFO) as text."""

from collections.abc import Iterator
from typing import Any, Final

from pocketmq.admin.api.client import by_queue
from pocketmq.admin.formats import java_text
from pocketmq.runtime.peer_text import time_text

Info = dict[str, Any]

_COUNTERS: Final = (
    *("commitOffset", "cachedMsgMinOffset", "cachedMsgMaxOffset", "cachedMsgCount", "cachedMsgSizeInMiB"),
    *("transactionMsgMinOffset", "transactionMsgMaxOffset", "transactionMsgCount", "locked", "tryUnlockTimes"),
    *("lastLockTimestamp", "droped", "lastPullTimestamp", "lastConsumeTimestamp"),
)
_SUBSCRIPTION: Final = "%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s"
_QUEUE_HEADER: Final = "%-64s  %-32s  %-4s  %-20s"
_RATES_HEADER: Final = "%-64s  %14s %14s %14s %14s %18s %25s"
_RATES_ROW: Final = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d"
_RATES: Final = ("pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS")


def running_info_text(info: Info) -> str:
    """Return running info in the sections of Apache's tool."""
    queues = by_queue(info.get("mqTable"))
    sections = [
        ("Consumer Properties", _properties(info.get("properties") or {})),
        ("Consumer Subscription", _subscriptions(info)),
        (
            "Consumer Offset",
            _queues(queues, "#Consumer Offset", "%-32s  %-32s  %-4d  %-20d", lambda row: row["commitOffset"]),
        ),
        ("Consumer MQ Detail", _queues(queues, "#ProcessQueueInfo", "%-64s  %-32s  %-4d  %s", _process_queue)),
    ]
    if popped := by_queue(info.get("mqPopTable")):
        sections.append(("Consumer Pop Detail", _queues(popped, "#ProcessQueueInfo", "%-32s  %-32s  %-4d  %s", _pop_queue)))
    sections.append(("Consumer RT&TPS", _rates(info.get("statusTable") or {})))
    if info.get("userConsumerInfo"):
        sections.append(("User Consume Info", _properties(info["userConsumerInfo"])))
    if info.get("jstack") is not None:
        sections.append(("Consumer jstack", iter(str(info["jstack"]).splitlines())))
    return "\n\n".join("".join(f"{line}\n" for line in (f"#{title}#", *lines)) for title, lines in sections)


def _properties(properties: Info) -> Iterator[str]:
    return (f"{name:<40}: {java_text(value)}" for name, value in sorted(properties.items()))


def _subscriptions(info: Info) -> Iterator[str]:
    for number, one in enumerate(sorted(info.get("subscriptionSet") or [], key=lambda one: str(one.get("topic"))), 1):
        yield _SUBSCRIPTION % (number, one.get("topic"), java_text(one.get("classFilterMode", False)), one.get("subString"))


def _queues(rows: list[tuple[Any, Info]], title: str, layout: str, shown: Any) -> Iterator[str]:
    yield _QUEUE_HEADER % ("#Topic", "#Broker Name", "#QID", title)
    for queue, row in rows:
        yield layout % (queue.topic, queue.broker_name, queue.queue_id, shown(row))


def _process_queue(row: Info) -> str:
    shown = ((_time if name.endswith("Timestamp") else java_text)(row.get(name)) for name in _COUNTERS)
    return f"ProcessQueueInfo [{', '.join(map('='.join, zip(_COUNTERS, shown, strict=True)))}]"


def _pop_queue(row: Info) -> str:
    last = _time(row.get("lastPopTimestamp"))
    counters = f"waitAckCount:{row.get('waitAckCount')}, droped:{java_text(row.get('droped'))}"
    return f"PopProcessQueueInfo [{counters}, lastPopTimestamp:{last}]"


def _rates(table: Info) -> Iterator[str]:
    header = "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour"
    yield _RATES_HEADER % ("#Topic", *header)
    for topic, status in sorted(table.items()):
        values: tuple[Any, ...] = (
            *(float(status.get(name) or 0) for name in _RATES),
            int(status.get("consumeFailedMsgs") or 0),
        )
        yield _RATES_ROW % (topic, *values)


def _time(timestamp_ms: Any) -> str:
    """Return a time as `20261121035128424` in local time."""
    return time_text(int(timestamp_ms or 0), "%Y%m%d%H%M%S%f")
