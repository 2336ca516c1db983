"""The figures of the report, counted again from the records by plain loops, without the readers, queries and tables of it.

Each function returns what one table of the report should have: rows as dicts, in the order of the table or keyed.
"""

import json
import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.spark_analytics.administered import Row, plain_records

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
INNER = {SCHEDULE, TIMER, HALF, OP, GIVEN_UP}
STEPS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 86_400)
LEVELS_S = (1, 5, 10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))
Figures = dict[Any, dict[str, Any]]


def is_own(topic: str) -> bool:
    """Return whether a topic is neither a broker's own nor one of retries and dead letters."""
    return topic not in INNER and not topic.startswith(("%RETRY%", "%DLQ%", "rmq_sys_"))


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def percentile(values: list[int], share: float) -> float:
    """Return a quantile with linear interpolation."""
    own, at = sorted(values), share * (len(values) - 1)
    low, high = own[math.floor(at)], own[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


class Recount:
    """The records of a store, and what its report should say about them."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.rows = list(plain_records(store))
        span_s = (max(row["stored_ms"] for row in self.rows) - min(row["stored_ms"] for row in self.rows)) / 1000
        self.step_ms = 1000 * next(step for step in STEPS_S if span_s / step <= 240)
        self.pairs = list(self._pairs())

    # --- volume, sizes, latency -------------------------------------------------------------------------------------

    def volume(self) -> Figures:
        groups = grouped(self.rows, lambda row: (row["topic"], row["stored_ms"] // self.step_ms * self.step_ms))
        return {
            key: {"messages": len(own), "bytes": sum(row["storeSize"] for row in own), "seconds": self.step_ms // 1000}
            for key, own in groups.items()
        }

    def hosts(self) -> Figures:
        groups = grouped(self.rows, lambda row: (row["sender"], row["broker"]))
        return {
            key: {
                "messages": len(own),
                "bytes": sum(row["storeSize"] for row in own),
                "topics": len({row["topic"] for row in own}),
            }
            for key, own in groups.items()
        }

    def sizes(self) -> Figures:
        found = {}
        for topic, own in grouped(self.rows, lambda row: row["topic"]).items():
            values = [row["storeSize"] for row in own]
            found[topic] = {
                "messages": len(own), "mean": sum(values) / len(own), "max": max(values), "bytes": sum(values),
                "p50": in_bucket(values, 0.5), "p99": in_bucket(values, 0.99),
            }  # fmt: skip
        return found

    def latencies(self) -> dict[str, list[int]]:
        """Return the times from birth to storage of messages that came directly from a client, by topic."""
        found = defaultdict(list)
        for row in self.rows:
            is_waiting = row["topic"] in (SCHEDULE, TIMER)
            is_copy = row["sysFlag"] & 12 == 8 or {"DELAY", "TIMER_OUT_MS"} & set(row["properties"])
            other = row["topic"] in INNER or row["topic"].startswith(("%RETRY%", "%DLQ%"))
            if row["reconsumeTimes"] == 0 and (is_waiting or not (is_copy or other)):
                found[row["topic"]].append(row["stored_ms"] - row["born_ms"])
        return found

    def latency(self) -> Figures:
        return {
            topic: {
                "messages": len(own), "max_ms": max(own), "before_born": sum(value < 0 for value in own),
                "p50_ms": max(in_bucket(own, 0.5), 0), "p99_ms": max(in_bucket(own, 0.99), 0),
            }
            for topic, own in self.latencies().items()
        }  # fmt: skip

    def buckets(self, values: Iterable[int], an_octave: int = 4) -> dict[int, int]:
        return dict(Counter(bucket(value, an_octave) for value in values))

    # --- delayed messages -------------------------------------------------------------------------------------------

    def _copies(self) -> list[Row]:
        """Return the scheduled and the delivered copies of delayed messages."""
        found = []
        for row in self.rows:
            own, topic = row["properties"], row["topic"]
            name = own.get("UNIQ_KEY") or f"{row['born_ms']} {row['bornHost']} {own.get('KEYS', '')}"
            copy = row | {"message": name, "due_ms": None}
            if own.get("DELAY") and topic in (SCHEDULE, own.get("REAL_TOPIC")):
                level = min(max(int(own["DELAY"]), 1), len(LEVELS_S))
                found.append(copy | {"real": own["REAL_TOPIC"], "level": level, "is_scheduled": topic == SCHEDULE})
            is_again = "TIMER_ROLL_TIMES" in own or "PMQ_COPY_OF" in own
            if (topic == TIMER or "TIMER_OUT_MS" in own) and not is_again and (topic == TIMER or is_own(topic)):
                wait_ms = 1000 * int(own.get("TIMER_DELAY_SEC", 0)) or int(own.get("TIMER_DELAY_MS", 0))
                due = int(own.get("TIMER_DELIVER_MS") or row["stored_ms"] + wait_ms)
                real = own.get("REAL_TOPIC") if topic == TIMER else topic
                found.append(copy | {"real": real, "level": 0, "is_scheduled": topic == TIMER, "due_ms": due})
        return found

    def _pairs(self) -> Iterable[Row]:
        """Yield each journey of a delayed message with the copies that it has."""
        copies = self._copies()
        cancels = {(c["properties"]["TIMER_DEL_UNIQKEY"], c["properties"]["TIMER_OUT_MS"]) for c in copies
                   if "TIMER_DEL_UNIQKEY" in c["properties"]}  # fmt: skip
        plain = [c for c in copies if "TIMER_DEL_UNIQKEY" not in c["properties"] and not (
            c["level"] == 0 and c["real"].startswith("rmq_sys_"))]  # fmt: skip
        for own in grouped(plain, lambda c: (c["real"], c["level"], c["message"], c["reconsumeTimes"])).values():
            sent, delivered = ([c for c in own if c["is_scheduled"] is side] for side in (True, False))
            for number, (first, second) in enumerate(zip_longest(sent, delivered)):
                some = first or second
                key = some["properties"].get("UNIQ_KEY")
                names = {key, f"{some['real']}+{key}", f"@{some['physicalOffset']}"}
                slot = some["properties"].get("TIMER_OUT_MS")
                if second is None and some["level"] == 0 and any((name, slot) in cancels for name in names):
                    continue
                due = None
                if first is not None:
                    due = first["due_ms"] or first["stored_ms"] + 1000 * LEVELS_S[some["level"] - 1]
                late = None if first is None or second is None else second["stored_ms"] - due
                yield {"real": some["real"], "level": some["level"], "first": first, "second": second, "late": late,
                       "is_repeated": number > 0}  # fmt: skip

    def lateness(self) -> Figures:
        found = {}
        for (topic, level), own in grouped(self.pairs, lambda pair: (pair["real"], pair["level"])).items():
            late = [pair["late"] for pair in own if pair["late"] is not None]
            alone = [pair for pair in own if pair["first"] is None]
            found[topic, level or None] = {
                "scheduled": sum(pair["first"] is not None for pair in own), "delivered": len(late),
                "pending": sum(pair["second"] is None for pair in own), "early": sum(value < 0 for value in late),
                "repeated": sum(pair["is_repeated"] for pair in alone),
                "unpaired": sum(not pair["is_repeated"] for pair in alone),
                "late_max_ms": max(late, default=None), "delay_ms": 1000 * LEVELS_S[level - 1] if level else None,
                "late_p50_ms": percentile(late, 0.5) if late else None,
                "late_p99_ms": percentile(late, 0.99) if late else None,
            }  # fmt: skip
        return found

    def late_series(self) -> Figures:
        step_ms = max(self.step_ms, 60_000)
        late = [pair for pair in self.pairs if pair["late"] is not None]
        return {
            time: {
                "delivered": len(own), "late_max_ms": max(pair["late"] for pair in own),
                "late_p50_ms": percentile([pair["late"] for pair in own], 0.5),
                "late_p99_ms": percentile([pair["late"] for pair in own], 0.99),
            }
            for time, own in grouped(late, lambda pair: pair["second"]["stored_ms"] // step_ms * step_ms).items()
        }  # fmt: skip

    def late_worst(self) -> list[tuple[int, int]]:
        late = [(-pair["late"], pair["second"]["physicalOffset"]) for pair in self.pairs if pair["late"] is not None]
        return [(-late_ms, offset) for late_ms, offset in sorted(late)[:20]]

    # --- keys -------------------------------------------------------------------------------------------------------

    def repeated(self) -> dict[tuple[str, str, str], int]:
        """Return the number of messages with a key that is repeated in its topic, by topic, kind and key."""
        times = defaultdict(list)
        for row in self.rows:
            if is_own(row["topic"]):
                keys = {("key", key) for key in row["properties"].get("KEYS", "").split(" ")}
                for kind, text in keys | {("unique key", row["properties"].get("UNIQ_KEY", ""))}:
                    if text:
                        times[row["topic"], kind, text].append(row["stored_ms"])
        return {key: len(own) for key, own in times.items() if len(own) > 1 and (key[1] == "key" or min(own) < max(own))}

    def duplicates(self) -> Figures:
        groups: dict[Any, list[int]] = defaultdict(list)
        for (topic, kind, _), count in self.repeated().items():
            groups[topic, kind].append(count)
        return {
            key: {"keys": len(own), "messages": sum(own), "superfluous": sum(own) - len(own), "messages_max": max(own)}
            for key, own in groups.items()
        }

    # --- state, retries ---------------------------------------------------------------------------------------------

    def config(self, name: str, table: str) -> dict[str, Any]:
        path = self.store / "config" / name
        if not path.is_file():
            return {}
        text = re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', path.read_text())  # fastjson writes numbers as names
        found: dict[str, Any] = json.loads(text)[table]
        return found

    def units(self, topic: str, queue_id: int) -> dict[int, tuple[int, int]]:
        """Return (physical offset, size) by queue offset."""
        found = {}
        for path in sorted((self.store / "consumequeue" / topic / str(queue_id)).glob("0*")):
            data = path.read_bytes()
            for at in range(0, len(data) - 19, 20):
                offset, size = struct.unpack_from(">qi", data, at)
                if size > 0:
                    found[(int(path.name) + at) // 20] = (offset, size)
        return found

    def lag(self) -> Figures:
        begin, found = int(min((self.store / "commitlog").iterdir()).name), {}
        for key, offsets in self.config("consumerOffset.json", "offsetTable").items():
            topic, group = key.split("@")
            own = []
            for queue_id, offset in offsets.items():
                units = self.units(topic, int(queue_id))
                if units:
                    live = [number for number, (physical, _) in units.items() if physical >= begin]
                    own.append((offset, min(live, default=max(units) + 1), max(units) + 1))
            if own and not group.startswith("CID_RMQ_SYS_"):
                lags = [end - offset for offset, _, end in own]
                found[group, topic] = {
                    "lag": sum(lags), "queue_lag_max": max(lags), "queues": len(own),
                    "queues_behind": sum(lag > 0 for lag in lags), "consumed": sum(offset for offset, _, _ in own),
                    "queues_with_loss": sum(offset < low for offset, low, _ in own),
                }  # fmt: skip
        return found

    def transactions(self) -> dict[tuple[str, str, str], int]:
        """Return the number of half messages by topic, producer group and outcome."""
        ended = {int(text) for row in self.rows if row["topic"] == OP for text in row["body"].split(b",") if text}
        committed = {row["preparedTransactionOffset"] for row in self.rows if row["topic"] != HALF}
        found: Counter[tuple[str, str, str]] = Counter()
        for row in self.rows:
            if row["topic"] == HALF:
                own = row["properties"]
                outcome = "rolledBack" if row["queueOffset"] in ended else "pending"
                outcome = "committed" if row["physicalOffset"] in committed else outcome
                found[own["REAL_TOPIC"], own["PGROUP"], outcome] += 1
        return dict(found)

    def retries(self) -> Figures:
        topics = self.config("topics.json", "topicConfigTable")
        groups = self.config("subscriptionGroup.json", "subscriptionGroupTable")
        of_pops = {f"{group}{sign}{topic}": (group, topic) for group in groups for topic in topics for sign in "_+"}

        def key(row: Row) -> tuple[str, str | None, int]:
            name = row["topic"].removeprefix("%RETRY%")
            group, topic = of_pops.get(name, (name, row["properties"].get("RETRY_TOPIC")))
            return group, topic, row["reconsumeTimes"]

        retried = [row for row in self.rows if row["topic"].startswith("%RETRY%")]
        return {
            group: {"deliveries": len(own), "messages": len({row["properties"]["UNIQ_KEY"] for row in own})}
            for group, own in grouped(retried, key).items()
        }

    def dead(self) -> list[Row]:
        """Return the dead letters with their reasons, newest first."""
        groups = self.config("subscriptionGroup.json", "subscriptionGroupTable")
        found = []
        for row in self.rows:
            if row["topic"].startswith("%DLQ%"):
                group, times, own = row["topic"].removeprefix("%DLQ%"), row["reconsumeTimes"], row["properties"]
                limit = groups[group]["retryMaxTimes"] if group in groups else None
                reason = "unknown group" if limit is None else f"given up after {times - 1} of {limit} retries"
                reason = f"all {limit} retries failed" if limit is not None and times > limit else reason
                lived = row["stored_ms"] - row["born_ms"]
                found.append(row | {"group": group, "origin_topic": own.get("RETRY_TOPIC"), "reason": reason,
                                    "lived_ms": lived, "origin": own.get("ORIGIN_MESSAGE_ID")})  # fmt: skip
        return sorted(found, key=lambda row: (-row["stored_ms"], -row["physicalOffset"]))

    def queues(self) -> Figures:
        """Return records, units and first and last queue offsets of each queue that has records or units."""
        dispatched = [row for row in self.rows if row["sysFlag"] & 12 in (0, 8)]
        begin = self.rows[0]["physicalOffset"]
        found: Figures = {}
        for key, own in grouped(dispatched, lambda row: (row["topic"], row["queueId"])).items():
            offsets = [row["queueOffset"] for row in own]
            units = {number: unit for number, unit in self.units(*key).items() if unit[0] >= begin}
            found[key] = {
                "records": len(own), "units": len(units), "first_record": min(offsets), "last_record": max(offsets),
                "agrees": units == {row["queueOffset"]: (row["physicalOffset"], row["storeSize"]) for row in own},
            }  # fmt: skip
        return found


def bucket(value: int, an_octave: int = 4) -> int:
    return -2 if value < 0 else -1 if value == 0 else math.floor(math.log2(value) * an_octave)


def in_bucket(values: list[int], share: float) -> int:
    """Return the largest integer of the bucket that holds a quantile, at most the largest value."""
    own = sorted(values)
    number = bucket(own[math.ceil(share * len(own)) - 1])
    return min(0 if number < 0 else math.ceil(2 ** ((number + 1) / 4)) - 1, own[-1])
