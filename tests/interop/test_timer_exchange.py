"""Timers stored by one broker are delivered by the other: Apache's 5.5.0 and PocketMQ, in both directions.

The first broker gets messages with all kinds of times, rolls those beyond a short roll window, delivers those due soon, and
ends: cleanly, or by kill -9 right after it got more messages. The second one delivers the rest, each once and in time, and
none that was cancelled at either broker. PocketMQ must be neither early nor late; Apache rounds to seconds. Time in which
other processes kept a broker from running does not count as its lateness (`cpu_wait`).
"""

import contextlib
import itertools
import struct
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.cpu_wait import CpuWait
from tests.interop.patience import wait
from tests.interop.servers import SAVING_TIMERS, Apache, Cluster, Flavour, Pocketmq
from tests.interop.toolchain import jars
from tests.interop.wire import RECALL_MESSAGE, Answer, Connection, Record
from tests.patience import PATIENCE_S
from tests.support.amount import cases

TOPIC, QUEUES = "Timer-exchange", 4
TIMER_TOPIC = "rmq_sys_wheel_timer"
CASES = [("pocketmq", "kill"), ("apache", "stop"), *cases([], [("pocketmq", "stop"), ("apache", "kill")])]
WINDOW_S = 12
CONFIG: dict[str, object] = {
    "timerRollWindowSlot": WINDOW_S,
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeTimerLog": 1 << 20,
    "diskMaxUsedSpaceRatio": 95,
    "waitTimeMillsInSendQueue": 30_000,
}
# Due times after the beginning. Messages due in 13 to 15 s are rolled after 6 s, the rest after 12 s, repeatedly; the first
# broker ends between two rolls. The last ones are due while the second broker runs: Apache takes ten seconds to stop and
# five to start, or twenty on a busy machine. (It delivers overdue messages to be rolled even if they are cancelled.)
AT_HOME_S = 1.5
FAR_S = (13, 14, 15, 18, 24)
LAST_S = (3, 6, 9)  # after the second broker has started
END_S, STOP_S = 10, 10
NEAR_S = (2, 5)  # after the first broker's end
CANCEL_MS = 3000  # before their due time, messages can still be cancelled
KINDS = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")

EARLY_MS_MAX = {"pocketmq": 0, "apache": 1100}
LATE_MS_MAX = {"pocketmq": 50, "apache": 2500}
# For a delay that Apache has put into the timer topic again, the due time is known only in whole seconds.
REROLLED_MS = 1000
_UNIT = struct.Struct(">iqiqiqiiq")


@dataclass(frozen=True)
class Timer:
    """A sent timer, due within [first_ms, last_ms]: a delay counts from the store time, which is not known exactly."""

    body: str
    kind: str
    first_ms: int
    last_ms: int
    handle: str | None

    @property
    def is_delay(self) -> bool:
        return self.kind != "TIMER_DELIVER_MS"


class StartedTooLate(AssertionError):
    """The second broker was ready too late to deliver enough messages in time, so the run checks too little."""


class TimerExchange:
    """A run of one broker, then the other, on the same store."""

    def __init__(self, folder: Path, first: str, ending: str, boot_s: "Future[float]", extra_s: int) -> None:
        """`boot_s` is the start time of an Apache broker, set by the run that starts one first and awaited by the others.

        The last due times are `extra_s` seconds later than estimated to be necessary.
        """
        self.cluster = Cluster(folder, Pocketmq(), **CONFIG, **SAVING_TIMERS)
        flavours: dict[str, Flavour] = {"pocketmq": Pocketmq(), "apache": Apache("5.5.0")}
        self.first, self.second = flavours[first], flavours["apache" if first == "pocketmq" else "pocketmq"]
        self.ending = ending
        self.boot_s = boot_s
        self.extra_s = extra_s
        self.lasts_s: list[float] = []
        self.timers: list[Timer] = []
        self.cancelled: list[Timer] = []
        self.waits: list[CpuWait] = []
        self.ended_ms = self.ready_ms = 0.0
        self.may_repeat = False
        self._noted_at_end_ms = 0
        self._numbers = itertools.count()

    def run(self) -> None:
        """Run the exchange. Raises AssertionError for a wrong result."""
        try:
            self._first_life()
            self._second_life()
            with self._connect() as connection:
                self._check(self._arrived(connection))
        finally:
            for wait in self.waits:
                wait.close()
            self.cluster.close()

    def _first_life(self) -> None:
        self._start(self.first)
        boot_s = self.boot_s.result(60)
        change_s = STOP_S + boot_s if self.first.name == "apache" else 2 * boot_s
        self.lasts_s = [END_S + change_s + self.extra_s + after_s for after_s in LAST_S]
        with self._connect() as connection:
            connection.create_topic(TOPIC, QUEUES, attributes="+message.type=DELAY")
            self.begin_ms = _now_ms()
            for at_s in (AT_HOME_S, *FAR_S, *self.lasts_s):
                for kind in KINDS:
                    self._send(connection, kind, self.begin_ms + round(at_s * 1000) + 137)
            self._cancel_some(connection)
            to_recall = [self._cancellable(connection) for _ in range(2)]
            at_home = {timer.body for timer in self.timers if timer.last_ms < self.begin_ms + 1000 * FAR_S[0] - 2000}
            wait(
                lambda: at_home <= {_body(record) for record in self._arrived(connection)},
                f"{at_home} to be delivered",
                PATIENCE_S,
            )
            late_ms = self.begin_ms + 1500 * WINDOW_S
            wait(lambda: self._is_between_rolls() or _now_ms() > late_ms, "a timer to be rolled, and saved", PATIENCE_S)
            for at_s in NEAR_S:
                for kind in KINDS:
                    self._send(connection, kind, _now_ms() + at_s * 1000)
            self._cancel_some(connection)
        self.cluster.stop_broker() if self.ending == "stop" else self.cluster.kill_broker()
        self.ended_ms = _now_ms()
        self._noted_at_end_ms = self._noted_ms()
        self.may_repeat = self.ending == "kill" and self._are_rolls_unnoted()
        self.cancelled += to_recall

    def _is_between_rolls(self) -> bool:
        """Whether a roll is saved, and the next one leaves time to send the first broker its remaining messages."""
        noted_ms = self._noted_ms()
        return any(time_ms < noted_ms for time_ms in self._rolls_ms()) and not self._are_rolls_unnoted(1500)

    def _are_rolls_unnoted(self, ahead_ms: int = 0) -> bool:
        """Whether something was rolled after `timercheck` was last written, which happens once a second.

        If Apache's broker is involved, such messages may be delivered twice after a kill; on a busy machine this is
        accepted.
        """
        return any(self._noted_ms() <= time_ms <= _now_ms() + ahead_ms for time_ms in self._rolls_ms())

    def _rolls_ms(self) -> set[int]:
        """Return the slots with units to be rolled: units of the timer log with the second bit of the magic set."""
        found = set()
        for path in (self.cluster.store / "timerlog").iterdir():
            data = path.read_bytes()
            for size, _, magic, write_time_ms, delay_ms, _, _, _, _ in _UNIT.iter_unpack(data[: len(data) // 52 * 52]):
                if size != _UNIT.size:
                    break
                if magic & 2:
                    found.add(write_time_ms + delay_ms)
        return found

    def _second_life(self) -> None:
        self.cluster.config = CONFIG
        self._start(self.second)
        self.ready_ms = _now_ms()
        with self._connect() as connection:
            by_handle, by_key = self.cancelled[-2:]
            if _now_ms() > by_handle.first_ms - CANCEL_MS:
                raise StartedTooLate(f"{self.second.name} started when the messages to be cancelled were due")
            self._recall(connection, by_handle)
            self._delete_by_key(connection, by_key)
            wanted = {timer.body for timer in self.timers}
            last_ms = max(timer.last_ms for timer in (*self.timers, *self.cancelled))
            # Messages that must not be delivered would have been delivered by then.
            wait(
                lambda: _now_ms() > last_ms + LATE_MS_MAX[self.second.name],
                "the last time",
                PATIENCE_S + max(last_ms - _now_ms(), 0) / 1000,
            )
            wait(
                lambda: wanted <= {_body(record) for record in self._arrived(connection)},
                f"{len(wanted)} timers to come",
                PATIENCE_S,
            )

    def _start(self, flavour: Flavour) -> None:
        began = time.monotonic()
        self.cluster.start_broker(flavour)
        if self.first is flavour and flavour.name == "apache" and not self.boot_s.done():
            with contextlib.suppress(InvalidStateError):  # another run was faster
                self.boot_s.set_result(time.monotonic() - began)
        assert self.cluster.broker is not None
        is_apache = flavour.name == "apache"
        self.waits.append(CpuWait(self.cluster.broker.pid, all_threads=is_apache, every_s=0.1 if is_apache else 0.01))

    def _connect(self) -> Connection:
        return Connection(self.cluster.broker_address)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _send(self, connection: Connection, kind: str, due_ms: int) -> Timer:
        """Send a message due at `due_ms`; for a delay in seconds, due in the second in which the delay ends."""
        number = next(self._numbers)
        body, sent_ms = f"{kind}-{number}", _now_ms()
        if kind == "TIMER_DELIVER_MS":
            value, first_ms = due_ms, due_ms
        else:
            unit_ms = 1000 if kind == "TIMER_DELAY_SEC" else 1
            value = (due_ms - sent_ms) // unit_ms
            first_ms = sent_ms + value * unit_ms
        answer = self._put(connection, number % QUEUES, body, {kind: str(value), "UNIQ_KEY": _unique_key(body)})
        last_ms = first_ms if kind == "TIMER_DELIVER_MS" else first_ms + _now_ms() - sent_ms
        timer = Timer(body, kind, first_ms, last_ms, answer.ext.get("recallHandle"))
        self.timers.append(timer)
        return timer

    @staticmethod
    def _put(connection: Connection, queue_id: int, body: str, properties: dict[str, str]) -> Answer:
        return connection.send(TOPIC, queue_id, body.encode(), properties)

    def _cancellable(self, connection: Connection) -> Timer:
        due_ms = self.begin_ms + round(self.lasts_s[-1] * 1000) + 1137
        timer = self._send(connection, "TIMER_DELIVER_MS", due_ms)
        self.timers.remove(timer)
        return timer

    def _cancel_some(self, connection: Connection) -> None:
        by_handle, by_key = (self._cancellable(connection) for _ in range(2))
        self._recall(connection, by_handle)
        self._delete_by_key(connection, by_key)
        self.cancelled += [by_handle, by_key]

    @staticmethod
    def _recall(connection: Connection, timer: Timer) -> None:
        assert timer.handle is not None
        answer = connection.ask(RECALL_MESSAGE, {"topic": TOPIC, "recallHandle": timer.handle})
        assert answer.ext["msgId"] == _unique_key(timer.body)

    def _delete_by_key(self, connection: Connection, timer: Timer) -> None:
        names = {"TIMER_DELIVER_MS": str(timer.first_ms), "TIMER_DEL_UNIQKEY": _unique_key(timer.body)}
        self._put(connection, 0, "cancels another, and is never delivered itself", names)

    # --- deliveries -------------------------------------------------------------------------------------------------

    def _noted_ms(self) -> int:
        """Return the read time in `timercheck`: messages due before are delivered."""
        return int.from_bytes((self.cluster.store / "config" / "timercheck").read_bytes()[:8], "big")

    @staticmethod
    def _arrived(connection: Connection) -> list[Record]:
        return [record for queue_id in range(QUEUES) for record in connection.read_queue(TOPIC, queue_id)]

    def _check(self, arrived: list[Record]) -> None:
        counts = Counter(_body(record) for record in arrived)
        wanted = Counter(timer.body for timer in self.timers)
        assert (wanted - counts, counts.keys() - wanted.keys()) == ({}, set()), "lost, or delivered although cancelled"
        unnoted = {_body(record) for record in arrived if self._is_unnoted(record)}
        twice = [record for record in arrived if counts[_body(record)] > 1 and _body(record) not in unnoted]
        told = [f"{_body(record)} at {record.store_timestamp_ms}: {record.properties}" for record in twice]
        times = f"the first began at {self.begin_ms}, had saved {self._noted_at_end_ms}, ended at {self.ended_ms}"
        assert self.may_repeat or not twice, "\n".join(["delivered twice", times, *told])
        delivered = {_body(record): record for record in arrived}
        wrong = [told for timer in self.timers if (told := self._complaint(timer, delivered[timer.body]))]
        assert not wrong, "\n".join(wrong)
        by_second = [record for record in arrived if record.store_timestamp_ms > self.ready_ms + 1000]
        if len(by_second) < len(KINDS):
            raise StartedTooLate("the second broker started too late to deliver enough messages in time")

    def _is_unnoted(self, record: Record) -> bool:
        """Whether a killed Apache broker delivered the message after its last save, at most a second before its end.

        A restarted Apache broker would deliver it again, too.
        """
        is_by_first = record.store_timestamp_ms <= self.ended_ms
        was_killed = self.ending == "kill" and self.first.name == "apache"
        return was_killed and is_by_first and int(record.properties.get("TIMER_OUT_MS", 0)) >= self._noted_at_end_ms

    def _complaint(self, timer: Timer, record: Record) -> str:
        """Return the problem with the delivery time, or ""."""
        came_ms = record.store_timestamp_ms
        is_second = came_ms > self.ended_ms
        name = (self.second if is_second else self.first).name
        due_ms = max(timer.last_ms, round(self.ready_ms)) if is_second else timer.last_ms
        late_ms = came_ms - due_ms
        late_max_ms = LATE_MS_MAX[name] + self.waits[is_second].between_ms(due_ms - 100, came_ms)
        if name == "pocketmq" and timer.is_delay and "TIMER_ROLL_TIMES" in record.properties:
            late_max_ms += REROLLED_MS
        if came_ms >= timer.first_ms - EARLY_MS_MAX[name] and late_ms <= late_max_ms:
            return ""
        return (
            f"{timer.body} was delivered by {name} {came_ms - timer.first_ms} ms after it was due, {late_ms} ms late "
            f"({late_max_ms:.0f} allowed): {record.properties}"
        )


def _unique_key(body: str) -> str:
    return f"U-{body}"


def _body(record: Record) -> str:
    return record.body.decode()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _exchange(folders: pytest.TempPathFactory, first: str, ending: str, boot_s: "Future[float]") -> None:
    """Run the exchange, again with later times if the second broker started too late."""
    for extra_s in (0, 20):
        with contextlib.suppress(StartedTooLate):
            return TimerExchange(folders.mktemp(f"{first}-{ending}"), first, ending, boot_s, extra_s).run()
    TimerExchange(folders.mktemp(f"{first}-{ending}"), first, ending, boot_s, 60).run()


@pytest.fixture(scope="module")
def runs(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], "Future[None]"]]:
    """All runs in parallel, because they mostly wait. The fixture `apache` skips if there is no Java."""
    jars("5.5.0-broker")
    boot_s: Future[float] = Future()
    tmp_path_factory.getbasetemp()  # made here: each thread that finds none would make one
    with ThreadPoolExecutor(len(CASES)) as threads:
        yield {
            (first, ending): threads.submit(_exchange, tmp_path_factory, first, ending, boot_s) for first, ending in CASES
        }


@pytest.mark.parametrize(("first", "ending"), CASES)
def test_pending_timers_are_delivered_by_the_other_broker(
    first: str, ending: str, runs: dict[tuple[str, str], "Future[None]"]
) -> None:
    runs[first, ending].result()
