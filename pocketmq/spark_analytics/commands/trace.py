"""History of a message from all of its copies: sent, delayed, prepared, delivered, retried, dead.

Copies of a message have its unique key and its keys. Several messages may share a key; each has a history of its own. An op
message, which ends a transaction, is the exception: it refers to the half message by queue offset, in its body.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.spark_analytics.commands.listing import listing
from pocketmq.spark_analytics.decoding.derived_columns import HALF_TOPIC, TIMER_TOPIC
from pocketmq.spark_analytics.pipelines.engine import Engine
from pocketmq.spark_analytics.pipelines.retries import group_and_topic
from pocketmq.spark_analytics.pipelines.stores import DLQ_PREFIX, RETRY_PREFIX, STORE_OF_FILE, Stores
from pocketmq.spark_analytics.tables.transactions import CHECK_TIMES, GIVEN_UP_TOPIC, OP_TOPIC
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import SCHEDULE_TOPIC

COPIES_MAX: Final = 1000
_COPIES: Final = f"""
SELECT *, {STORE_OF_FILE} AS store FROM {{log}}
WHERE uniqKey IN (:names) OR array_contains(split(keys, ' '), :key) OR offsetMsgId = upper(:key)
ORDER BY storeTimestamp, physicalOffset LIMIT {COPIES_MAX}
"""
COLUMNS: Final = (
    *("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "bornTimestamp", "storeTimestamp"),
    *("bornHost", "reconsumeTimes", "preparedTransactionOffset", "keys", "uniqKey", "offsetMsgId", "deliverTime"),
    *("realTopic", "properties", "storePath"),
)
OP_COLUMNS: Final = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "body", "storePath")
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Event:
    """An event in a message's history; the offsets are those of the record that documents it."""

    at: datetime
    what: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Life:
    """The history of one message; `message` is its unique key, or its offset message id."""

    store: str
    message: str
    keys: str
    events: tuple[Event, ...]


def make_trace(
    engine: Engine, paths: Sequence[str], key: str, levels: DelayLevels, on_step: Callable[[str], None] = lambda step: None
) -> list[Life]:
    """Return the histories of all messages with this key, unique key or id, oldest first, by a scan of the log."""
    stores = Stores(engine, tuple(paths), levels)
    on_step("copies in the log")
    copies = _copies(stores, key, (key,))
    named = {row["uniqKey"] for row in copies if row["uniqKey"]}
    if any(row["offsetMsgId"] == key.upper() for row in copies) and named:
        # An id belongs to one copy; the others are found by its unique key.
        on_step("other copies in the log")
        copies = _copies(stores, key, (key, *sorted(named)))
    ops = []
    if any(row["topic"] == HALF_TOPIC for row in copies):
        on_step("the ends of transactions")
        ops = _ops(stores)
    on_step("consumer offsets")
    return lives_of(copies, ops, engine.collected(stores.table("offsets")).to_pylist())


def lives_of(copies: Rows, ops: Rows, offsets: Rows) -> list[Life]:
    """Return the histories of some copies. `ops`: op messages; `offsets`: rows of the table offsets."""
    lives: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for row in copies:
        message = row["uniqKey"] or (row["bornHost"], row["bornTimestamp"], row["keys"])
        lives.setdefault((row["store"], message), []).append(row)
    named = [op | {"named": {int(part) for part in (op["body"] or "").split(",") if part.isdigit()}} for op in ops]
    return [_life(store, rows, named, offsets) for (store, _), rows in lives.items()]


def _copies(stores: Stores, key: str, names: Sequence[str]) -> Rows:
    log = stores.messages(*COLUMNS, delayLevel=stores.level_option, dropReplicas="false")
    marks = ", ".join(f":name{number}" for number in range(len(names)))
    parameters = {"key": key} | {f"name{number}": name for number, name in enumerate(names)}
    found = stores.rows(_COPIES.replace(":names", marks), parameters, log=log).to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in found]


def _ops(stores: Stores) -> Rows:
    """Return the op messages."""
    log = stores.messages(*OP_COLUMNS, topic=OP_TOPIC, bodyAs="string", dropReplicas="false")
    found: Rows = stores.rows(f"SELECT *, {STORE_OF_FILE} AS store FROM {{log}}", log=log).to_pylist()
    return found


def _life(store: str, rows: list[dict[str, Any]], ops: list[dict[str, Any]], offsets: list[dict[str, Any]]) -> Life:
    first = rows[0]
    events = [Event(first["bornTimestamp"], "born", detail=f"by {first['bornHost']}")]
    due, groups = None, {str(row["group"]) for row in offsets}
    for row in rows:
        events.append(_event(row, *_told(row, due, groups)))
        if row["deliverTime"] is not None:
            due = row["deliverTime"]
        if row["topic"] == HALF_TOPIC:
            for op in ops:
                if op["store"] == store and op["queueId"] == row["queueId"] and row["queueOffset"] in op["named"]:
                    detail = f"the half message at queue offset {row['queueOffset']} is resolved"
                    events.append(_event(op, "resolved", detail))
    events[1:] = sorted(events[1:], key=lambda event: (event.at, event.physical_offset or 0))
    events = [_with_consumers(store, event, offsets) for event in events]
    return Life(store, first["uniqKey"] or first["offsetMsgId"], first["keys"] or "", tuple(events))


def _event(row: dict[str, Any], what: str, detail: str) -> Event:
    place = (row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"])
    return Event(row["storeTimestamp"], what, *place, detail)


def _told(row: dict[str, Any], due: datetime | None, groups: set[str]) -> tuple[str, str]:
    """Return (event, details)."""
    topic, times, properties = row["topic"], row["reconsumeTimes"], row["properties"]
    if topic == HALF_TOPIC:
        checks = properties.get(CHECK_TIMES)
        group = properties.get("PGROUP")
        return ("checked", f"{group}, check {checks}") if checks else ("prepared", f"half message of {group}")
    if topic == GIVEN_UP_TOPIC:
        return "given up", "its producer was checked the maximum number of times"
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        if "TIMER_DEL_UNIQKEY" in properties:
            return "cancelled", f"{properties['TIMER_DEL_UNIQKEY']} is not to be delivered"
        when = f" until {clock(row['deliverTime'])}" if row["deliverTime"] else ""
        level = f", level {properties['DELAY']}" if topic == SCHEDULE_TOPIC and "DELAY" in properties else ""
        what = f"waits for retry {times}" if times else "waits"
        if "TIMER_ROLL_TIMES" in properties:
            what = "still waits"
        return what, f"for {row['realTopic']}{when}{level}"
    if topic.startswith(DLQ_PREFIX):
        return "dead letter", f"of {topic.removeprefix(DLQ_PREFIX)}, sent back {times} times{_origin(properties)}"
    if topic.startswith(RETRY_PREFIX):
        group, _ = group_and_topic(topic, groups, ())
        return f"retry {times}", f"to {group}{_late(row, due)}{_origin(properties)}"
    if row["sysFlag"] & 12 == 8:
        return "committed", f"of the half message at physical offset {row['preparedTransactionOffset']}"
    delay = properties.get("DELAY", "")
    if "TIMER_OUT_MS" in properties or (delay.isdecimal() and int(delay) > 0):
        return "delivered", (_late(row, due) or ", its due time is no longer in the log").removeprefix(", ")
    return "stored", f"{row['storeSize']} bytes"


def _late(row: dict[str, Any], due: datetime | None) -> str:
    if due is None:
        return ""
    late_ms = round((row["storeTimestamp"] - due).total_seconds() * 1000)
    return f", {late_ms} ms late" if late_ms >= 0 else f", {-late_ms} ms early"


def _origin(properties: dict[str, str]) -> str:
    origin, topic = properties.get("ORIGIN_MESSAGE_ID"), properties.get("RETRY_TOPIC")
    return f"; first consumed from {topic} as {origin}" if origin else ""


def _with_consumers(store: str, event: Event, offsets: list[dict[str, Any]]) -> Event:
    """Add to an event the groups that have, or have not, confirmed its message."""
    if event.topic in (None, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
        return event
    place = (store, event.topic, event.queue_id)
    own = [row for row in offsets if (row["store"], row["topic"], row["queueId"]) == place]
    details = [
        f"{'confirmed by' if row['consumerOffset'] > (event.queue_offset or 0) else 'not confirmed by'} {row['group']}"
        for row in sorted(own, key=lambda row: str(row["group"]))
    ]
    return replace(event, detail="; ".join([event.detail, *details]))


def clock(at: datetime) -> str:
    """Format a time to the millisecond."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def print_trace(lives: Sequence[Life], console: Printer) -> None:
    """Print a table per message, with the time between its events."""
    for life in lives:
        title = f"{life.message}{f' ({life.keys})' if life.keys else ''} in {life.store}"
        console.print(title, soft_wrap=True)
        table = listing("UTC", "+ms", "event", "topic", "queue", "queue offset", "physical offset", "")
        before = life.events[0].at
        for event in life.events:
            passed_ms = round((event.at - before).total_seconds() * 1000)
            before = event.at
            numbers = (event.queue_id, event.queue_offset, event.physical_offset)
            cells = (clock(event.at), f"{passed_ms:,}", event.what, event.topic or "", *numbers, event.detail)
            table.add_row(*("" if cell is None else str(cell) for cell in cells))
        console.print(table)


def trace_json(lives: Sequence[Life]) -> str:
    """Return the histories as a JSON list."""
    return json.dumps([asdict(life) for life in lives], indent=2, default=lambda value: value.isoformat())
