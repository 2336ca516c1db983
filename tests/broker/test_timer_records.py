"""Plain records of the timer topic are read quickly, with the same result as by decoding all their properties."""

import random

import pytest

from pocketmq.broker.delay.records import TimerRecord, properties_at, read_timer_record, timer_record
from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.store.format.message import Message
from pocketmq.store.format.record import store_timestamp_of
from tests.broker.timed import HOST, Timed

NUMBERS = ("0", "7", "007", "-5", "+9", "1795282779542", "9" * 15, "9" * 16, "9" * 30, "soon", "1e3", "\u0663", "1 2", "")
NAMES = (
    "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME", "PMQ_DUE_MS", "TIMER_ROLL_TIMES",
    "PMQ_COPY_OF", "XTIMER_OUT_MS", "TIMER_DEL_UNIQKEY",
)  # fmt: skip


def decoded(view: memoryview) -> TimerRecord | None:
    try:
        return timer_record(properties_at(view, 0), store_timestamp_of(view, 0), 1000)
    except ValueError:
        return None


def read(view: memoryview) -> TimerRecord | None:
    try:
        return read_timer_record(view, 1000)
    except ValueError:
        return None


@pytest.mark.parametrize("seed", range(20))
async def test_records_are_read_as_decoded(seed: int) -> None:
    t = Timed(commit_log_file_size=1 << 18)
    chance = random.Random(seed)
    found = []
    for _ in range(300):
        entries = [("UNIQ_KEY", str(chance.random())), ("REAL_TOPIC", chance.choice(("T", "Orders", "\u00fcbrig")))]
        entries += [(name, chance.choice(NUMBERS)) for name in NAMES if chance.random() < 0.2]
        entries += [("TIMER_OUT_MS", chance.choice(NUMBERS[:7]))] * (chance.random() < 0.9)
        chance.shuffle(entries)
        text = "\x02".join(f"{name}\x01{value}" for name, value in entries) + "\x02" * chance.randrange(2)
        raw = text.encode()
        born_host = HOST if len(raw) % 3 else bytes(16) + HOST[4:]
        result = t.store.commit_log.put(Message(TIMER_TOPIC, 0, raw[:40], born_host, HOST, properties_bytes=raw))
        t.store.commit_log.tail.write()
        view = t.store.message_at(result.physical_offset)
        assert view is not None
        found.append(read(view))
        assert found[-1] == decoded(view), text
    assert any(found) and None in found
