"""Repeated kill -9 while timers are entered, rolled, delivered and recalled, on one store, in both flush modes.

Acknowledged timers are delivered, and not before they are due; timers recalled in time are never delivered. A timer may be
delivered twice only if its copy was stored but not yet marked as delivered at a kill: some timers of one delivery turn.

Many timers are due together, at multiples of half a second, and half of the kills follow shortly after. Slots and roll
window are so short that a timer of seven seconds is rolled half-way, between kills. A recalled timer may have been stored by
an earlier process.
"""

import itertools
import random
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.interop.killing import SMALL_FILES, Ask, Load, kill_while_starting, load_until_killed
from tests.interop.patience import wait
from tests.interop.servers import Cluster, Pocketmq
from tests.interop.wire import RECALL_MESSAGE, SEND_MESSAGE_V2, SUCCESS, Connection, Record, send_fields
from tests.patience import PATIENCE_S
from tests.support.amount import cases

TOPIC, LAST_TOPIC, QUEUES = "Killed-timers", "Killed-timers-last", 4
TIMER_TOPIC = "rmq_sys_wheel_timer"
STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
KINDS = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "__STARTDELIVERTIME")
LOAD_MIN_S, LOAD_MAX_S = 0.05, 0.3
START_MAX_S = 0.6
ONE_START_IN = 5
"""The broker is also killed during its start in one of this many cycles."""
PRECISION_MS, ROLL_WINDOW_MS = 100, 6600
NEAR_MS_MAX, FAR_MS_MAX = 1500, 7200
TOGETHER_MS = 500
BURST_S = 0.03
MARGIN_MS = 500
"""Time by which the last timer is due after all others: a delay counts from the store time."""
ONE_IN_FAR, ONE_IN_RECALLS = 5, 8
RECALLABLE_MAX = 300
REPEATED_MAX = 400
"""Limit of messages delivered in one turn within BUDGET_S, with room for faster machines."""


@dataclass(slots=True)
class Timer:
    """A timer of the load. `due_ms` is its earliest due time; for a delay an estimate until the store time is known."""

    kind: str
    value_ms: int
    due_ms: int
    handle: str = ""
    is_recalled: bool | None = None
    """True: a recall was requested, perhaps in time. None: not requested, or refused."""
    is_never: bool = False
    """Whether the recall was acknowledged before the due time."""


class TimerLoad(Load):
    """Timers, and recalls of recently acknowledged ones."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: dict[str, Timer] = {}
        self.takes_far = True
        self.rolled_count = 0
        """Number of acknowledged timers that are due beyond the roll window."""
        self.refused_recalls = 0
        self._recallable: deque[Timer] = deque(maxlen=RECALLABLE_MAX)
        self._differences_ms: list[float] = []
        self._numbers = itertools.count()
        self._random = random.Random(9)

    @property
    def set_ms(self) -> float:
        """Maximum change of the calendar (wall clock) between two readings."""
        return max(self._differences_ms) - min(self._differences_ms)

    def look_at_clocks(self) -> None:
        self._differences_ms.append(_difference_ms())

    async def send(self, sender: int, ask: Ask) -> None:
        if self._recallable and self._random.randrange(ONE_IN_RECALLS) == 0:
            at = self._random.randrange(len(self._recallable))
            timer = self._recallable[at]
            del self._recallable[at]
            await self._recall(timer, ask)
        else:
            await self._send(sender % QUEUES, ask)

    async def _send(self, queue_id: int, ask: Ask) -> None:
        rng, name, now_ms = self._random, f"t{next(self._numbers)}", _now_ms()
        is_far = self.takes_far and rng.randrange(ONE_IN_FAR) == 0
        ahead_ms = rng.randrange(ROLL_WINDOW_MS, FAR_MS_MAX) if is_far else rng.randrange(1, NEAR_MS_MAX)
        kind = rng.choice(KINDS)
        if kind == "TIMER_DELAY_MS":
            timer = Timer(kind, ahead_ms, now_ms + ahead_ms)
        else:
            due_ms = now_ms + ahead_ms
            if rng.random() < 0.8:
                due_ms += -due_ms % TOGETHER_MS
            timer = Timer(kind, due_ms, due_ms)
        self.timers[name] = timer
        properties = {kind: str(timer.value_ms), "UNIQ_KEY": name}
        answer = await ask(SEND_MESSAGE_V2, send_fields(TOPIC, queue_id, properties), name.encode())
        if answer.code == SUCCESS:
            # A message that was already due has no handle.
            timer.handle = answer.ext.get("recallHandle", "none")
            self.rolled_count += is_far
            if timer.handle != "none":
                self._recallable.append(timer)

    async def _recall(self, timer: Timer, ask: Ask) -> None:
        timer.is_recalled = True
        answer = await ask(RECALL_MESSAGE, {"topic": TOPIC, "recallHandle": timer.handle})
        if answer.code == SUCCESS:
            timer.is_never = _now_ms() < timer.due_ms
        else:
            timer.is_recalled = None
            self.refused_recalls += 1


def _now_ms() -> int:
    return int(time.time() * 1000)


def _difference_ms() -> float:
    """Return the difference of calendar and steady clock, from the reading that was interrupted least."""
    readings = [(time.clock_gettime(STEADY), time.time(), time.clock_gettime(STEADY)) for _ in range(5)]
    began_s, now_s, _ = min(readings, key=lambda reading: reading[2] - reading[0])
    return 1000 * (now_s - began_s)


@pytest.fixture(params=cases(["ASYNC_FLUSH"], ["SYNC_FLUSH", "ASYNC_FLUSH"]))
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(
        tmp_path_factory.mktemp("killed"), Pocketmq(), flushDiskType=request.param, timerPrecisionMs=PRECISION_MS,
        timerRollWindowSlot=ROLL_WINDOW_MS // PRECISION_MS, mappedFileSizeTimerLog=1 << 20, **SMALL_FILES,
    )  # fmt: skip
    yield running
    running.close()


@pytest.mark.slow
@pytest.mark.timeout(5400)  # long runs use hundreds of cycles
async def test_kill_minus_9_with_timers(killed: Cluster, pytestconfig: pytest.Config) -> None:
    # each takes longer than in test_kill_minus_9
    cycles = (pytestconfig.getoption("--kill-cycles", default=None) or cases(8, 20)) // 2
    load, rng, began = TimerLoad(), random.Random(5), time.monotonic()
    ended_ms: list[int] = []
    for cycle in range(cycles):
        if cycle and rng.randrange(ONE_START_IN) == 0:
            kill_while_starting(killed, rng.uniform(0, START_MAX_S))
            ended_ms.append(_now_ms())
        load.look_at_clocks()
        load.takes_far = cycle <= cycles // 2  # later ones would only prolong the final wait
        killed.start_broker()
        if cycle == 0:
            with Connection(killed.broker_address) as connection:
                connection.create_topic(TOPIC, QUEUES)
                connection.create_topic(LAST_TOPIC, 1)
        seconds = rng.uniform(LOAD_MIN_S, LOAD_MAX_S)
        if rng.random() < 0.5:
            # Load until the next time at which timers are due together, and a little longer.
            seconds += -(time.time() + seconds) % (TOGETHER_MS / 1000) + rng.uniform(0, BURST_S)
        await load_until_killed(killed, load, seconds)
        ended_ms.append(_now_ms())
    killed.start_broker()
    with Connection(killed.broker_address) as connection:
        wait_for_the_last(connection, load)
        copies = [record for queue_id in range(QUEUES) for record in connection.read_queue(TOPIC, queue_id)]
        stored = connection.read_queue(TIMER_TOPIC, 0)
    load.look_at_clocks()
    figures = audit(load, copies, stored, ended_ms)
    print(f"\n{killed.config['flushDiskType']}: {len(ended_ms)} kills in {time.monotonic() - began:.0f} s: {figures}")


def wait_for_the_last(connection: Connection, load: TimerLoad) -> None:
    """Wait for a timer that is due after all others. Timers are delivered by due time, so then all are delivered."""
    last_ms = max(timer.due_ms for timer in load.timers.values()) + MARGIN_MS
    connection.send(LAST_TOPIC, 0, b"last", {"TIMER_DELIVER_MS": str(last_ms)})
    wait(lambda: connection.max_offset(LAST_TOPIC, 0) > 0, "the last timer", PATIENCE_S)


def audit(load: TimerLoad, copies: list[Record], stored: list[Record], ended_ms: list[int]) -> str:
    """Check that no timer is lost, early, delivered despite its recall, or repeated without a kill; return the figures."""
    for record in stored:
        timer = load.timers.get(record.body.decode())  # None for a recall
        if timer is not None and timer.kind == "TIMER_DELAY_MS":
            timer.due_ms = record.store_timestamp_ms + timer.value_ms
    came = Counter(record.body.decode() for record in copies)
    acknowledged = {name for name, timer in load.timers.items() if timer.handle}
    wanted = {name for name in acknowledged if load.timers[name].is_recalled is None}
    never = {name for name, timer in load.timers.items() if timer.is_never}
    assert not came.keys() - load.timers.keys()
    assert not wanted - came.keys(), "lost"
    assert not never & came.keys(), "delivered despite the recall"
    early = [told for record in copies if (told := complaint(load.timers[record.body.decode()], record, load.set_ms))]
    assert not early, "\n".join(early[:20])
    repeated = repeated_by_kill(copies, ended_ms)
    most = max(repeated.values(), default=0)
    return (
        f"{len(acknowledged)} acknowledged, {len(came)} of {len(load.timers)} sent delivered, {len(wanted)} required, "
        f"none early; {load.rolled_count} beyond the roll window; {len(never)} recalled in time, none delivered, "
        f"{load.refused_recalls} too late; "
        f"{sum(repeated.values())} delivered twice by {len(repeated)} kills, at most {most} by one"
    )


def complaint(timer: Timer, record: Record, set_ms: float) -> str:
    """Return how early the timer was delivered, or "". Delays may be early by the change of the calendar, `set_ms`."""
    leeway_ms = set_ms + 1 if timer.kind == "TIMER_DELAY_MS" and set_ms >= 1 else 0
    early_ms = timer.due_ms - record.store_timestamp_ms
    return f"{timer} was delivered {early_ms} ms early" if early_ms > leeway_ms else ""


def repeated_by_kill(copies: list[Record], ended_ms: list[int]) -> Counter[int]:
    """Count repeated deliveries by kill. Only the last messages that a killed process put may be repeated."""
    by_process: dict[int, list[str]] = defaultdict(list)
    for record in sorted(copies, key=lambda record: record.physical_offset):
        by_process[bisect_left(ended_ms, record.store_timestamp_ms)].append(record.body.decode())
    repeated: Counter[int] = Counter()
    last_seen: dict[str, tuple[int, int]] = {}
    for process, names in by_process.items():
        for left, name in zip(range(len(names), 0, -1), names, strict=True):
            if name in last_seen:
                earlier, behind = last_seen[name]
                assert earlier < process, f"{name} was delivered twice by one process"
                assert behind <= REPEATED_MAX, f"{name} was delivered again, but was {behind} copies before the end"
                repeated[earlier] += 1
            last_seen[name] = process, left
    return repeated
