"""Repeated kill -9 under load on one store, in both flush modes: all acknowledged messages are there, in order.

Data in the page cache survives a kill, so these tests check recovery and order, not the sync itself, which the tests on the
simulated disk check. The load uses a hand-coded client, so that acknowledgements do not depend on PocketMQ's code.

Each sender has one message in flight. Most messages are plain, each with a key. Some are delayed by the first level, and all
of these must be delivered in the end (some twice, because the progress of a level is saved at intervals).
"""

import random
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.interop.killing import SENDERS, SMALL_FILES, Ask, Load, load_until_killed
from tests.interop.servers import Cluster, Flavour
from tests.interop.wire import SEND_MESSAGE_V2, SUCCESS, Connection, records, send_fields
from tests.patience import PATIENCE_S
from tests.support.amount import cases

TOPIC, DELAYED_TOPIC, QUEUES = "Killed-topic", "Killed-delayed", 4
LOAD_MIN_S, LOAD_MAX_S = 0.05, 0.3
QUERY_MESSAGE = 12
KEYS_ASKED = 300
ONE_IN_DELAYED = 8


@pytest.fixture(params=cases(["SYNC_FLUSH"], ["SYNC_FLUSH", "ASYNC_FLUSH"]))
def killed(request: pytest.FixtureRequest, flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("killed"), flavour, flushDiskType=request.param, **SMALL_FILES)
    yield running
    running.close()


class PlainLoad(Load):
    """Plain messages and some of a delay level; records the acknowledged ones."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)  # queue -> queue offset -> CRC of the body
        self.delayed: set[int] = set()  # CRCs of acknowledged bodies
        self.keys: dict[str, int] = {}  # key -> CRC of the acknowledged body
        self._numbers = [0] * SENDERS
        self._random = random.Random(9)

    async def send(self, sender: int, ask: Ask) -> None:
        queue_id = sender % QUEUES
        self._numbers[sender] += 1
        number = self._numbers[sender]
        body = f"{sender}:{number}:".encode() + self._random.randbytes(self._random.randrange(1500))
        delayed, key = number % ONE_IN_DELAYED == 0, f"s{sender}n{number}"
        topic, properties = (DELAYED_TOPIC, {"DELAY": "1"}) if delayed else (TOPIC, {"KEYS": key})
        answer = await ask(SEND_MESSAGE_V2, send_fields(topic, queue_id, properties), body)
        if answer.code != SUCCESS:
            return
        if delayed:
            self.delayed.add(zlib.crc32(body))
        else:
            self.acknowledged[queue_id][int(answer.ext["queueOffset"])] = zlib.crc32(body)
            self.keys[key] = zlib.crc32(body)


@pytest.mark.slow
@pytest.mark.timeout(5400)  # long runs use hundreds of cycles
async def test_kill_minus_9_under_load(killed: Cluster, pytestconfig: pytest.Config) -> None:
    cycles = pytestconfig.getoption("--kill-cycles", default=None) or cases(5, 20)
    load, rng, began = PlainLoad(), random.Random(5), time.monotonic()
    for cycle in range(cycles):
        killed.start_broker()
        with Connection(killed.broker_address) as connection:
            if cycle == 0:
                connection.create_topic(TOPIC, QUEUES)
                connection.create_topic(DELAYED_TOPIC, QUEUES)
            for queue_id, acknowledged in load.acknowledged.items():
                assert connection.max_offset(TOPIC, queue_id) > max(acknowledged), f"cycle {cycle}, queue {queue_id}"
        await load_until_killed(killed, load, rng.uniform(LOAD_MIN_S, LOAD_MAX_S))
    killed.start_broker()
    total = sum(map(len, load.acknowledged.values()))
    with Connection(killed.broker_address) as connection:
        found = audit(connection, load)
        audit_index(connection, load, rng)
        audit_delayed(connection, load)
    print(
        f"\n{killed.config['flushDiskType']}: {cycles} kills in {time.monotonic() - began:.0f} s: {total} acknowledged, "
        f"{found} found, none missing, in order; {len(load.delayed)} delayed, all delivered"
    )


def audit(connection: Connection, load: PlainLoad) -> int:
    """Read all queues: no gap, each acknowledged body at its offset, the messages of each sender in order."""
    found = 0
    for queue_id in range(QUEUES):
        stored_records = connection.read_queue(TOPIC, queue_id)
        assert [record.queue_offset for record in stored_records] == list(range(len(stored_records)))
        physical = [record.physical_offset for record in stored_records]
        assert physical == sorted(physical)
        stored = {record.queue_offset: zlib.crc32(record.body) for record in stored_records}
        lost = {at for at, crc in load.acknowledged[queue_id].items() if stored.get(at) != crc}
        assert not lost, f"queue {queue_id}: acknowledged but missing: {sorted(lost)[:20]}"
        last: dict[bytes, int] = defaultdict(int)
        for record in stored_records:
            sender, number, _ = record.body.split(b":", 2)
            assert int(number) > last[sender], f"queue {queue_id}: {record.body[:20]!r} after {last[sender]}"
            last[sender] = int(number)
        found += len(stored_records)
    return found


def audit_index(connection: Connection, load: PlainLoad, rng: random.Random) -> None:
    """Query some of the acknowledged messages by key."""
    for key in rng.sample(sorted(load.keys), min(KEYS_ASKED, len(load.keys))):
        fields = {"topic": TOPIC, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
        found = records(connection.ask(QUERY_MESSAGE, fields).body)
        assert load.keys[key] in {zlib.crc32(record.body) for record in found}, f"{key} is not in the index"


def audit_delayed(connection: Connection, load: PlainLoad) -> None:
    """Wait until each acknowledged delayed message is delivered at least once."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        delivered = {
            zlib.crc32(record.body)
            for queue_id in range(QUEUES)
            for record in connection.read_queue(DELAYED_TOPIC, queue_id)
        }
        missing = load.delayed - delivered
        if not missing:
            return
        assert time.monotonic() < deadline, f"{len(missing)} of {len(load.delayed)} delayed messages were not delivered"
        time.sleep(0.2)
