"""kill -9 under load, again and again on one store: in either flush mode, what was acknowledged is there, in order.

What the kernel holds survives a kill, so this shows recovery and the order of things, not the fsync itself: that is for the
simulated disk to show. The load speaks the wire by hand; nothing of ours decides what counts as acknowledged.

Each sender has one message in flight. Most are plain, with a key each; some are delayed by the first level, and must all
come out in the end (some twice: how far a level has been delivered is written by the clock).
"""

import asyncio
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator

import pytest
from servers import Cluster, Flavour
from wire import SEND_MESSAGE_V2, SUCCESS, Connection, decode, encode, records, send_fields

TOPIC, DELAYED_TOPIC, QUEUES, SENDERS = "Killed-topic", "Killed-delayed", 4, 16
LOAD_MIN_S, LOAD_MAX_S = 0.05, 0.3
FIRST_DEADLINE_S = 20  # a sync of a busy disk may take longer than the whole load
QUERY_MESSAGE = 12
KEYS_ASKED = 300
DELIVERY_DEADLINE_S = 60
ONE_IN_DELAYED = 8


@pytest.fixture(params=["SYNC_FLUSH", "ASYNC_FLUSH"])
def killed(request: pytest.FixtureRequest, flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(
        tmp_path_factory.mktemp("killed"), flavour, flushDiskType=request.param, mappedFileSizeCommitLog=4 << 20,
        maxMessageSize=1 << 16, maxHashSlotNum=5000, maxIndexNum=20_000,
    )  # fmt: skip
    yield running
    running.close()


class Load:
    """Senders with one message in flight each, so that what each one sent has an order; remembers what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)  # queue -> queue offset -> CRC of the body
        self.delayed: set[int] = set()  # CRCs of acknowledged bodies
        self.keys: dict[str, int] = {}  # key -> CRC of the acknowledged body
        self.anything_taken = asyncio.Event()
        self._numbers = [0] * SENDERS
        self._random = random.Random(9)

    async def run(self, address: str) -> None:
        """Sends until the connection breaks."""
        await asyncio.gather(*(self._send(address, sender) for sender in range(SENDERS)))

    async def _send(self, address: str, sender: int) -> None:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        queue_id = sender % QUEUES
        try:
            while True:
                self._numbers[sender] += 1
                number = self._numbers[sender]
                body = f"{sender}:{number}:".encode() + self._random.randbytes(self._random.randrange(1500))
                delayed, key = number % ONE_IN_DELAYED == 0, f"s{sender}n{number}"
                topic, properties = (DELAYED_TOPIC, {"DELAY": "1"}) if delayed else (TOPIC, {"KEYS": key})
                writer.write(encode(SEND_MESSAGE_V2, number, send_fields(topic, queue_id, properties), body))
                answer = decode(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
                if answer.code != SUCCESS:
                    continue
                self.anything_taken.set()
                if delayed:
                    self.delayed.add(zlib.crc32(body))
                else:
                    self.acknowledged[queue_id][int(answer.ext["queueOffset"])] = zlib.crc32(body)
                    self.keys[key] = zlib.crc32(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def load_until_killed(cluster: Cluster, load: Load, seconds: float) -> None:
    load.anything_taken.clear()
    sending = asyncio.create_task(load.run(cluster.broker_address))
    await asyncio.wait({sending}, timeout=seconds)  # the load is what is waited for; it breaks by the kill
    await asyncio.wait_for(load.anything_taken.wait(), FIRST_DEADLINE_S)
    assert cluster.broker
    cluster.kill_broker()
    await asyncio.wait_for(sending, 10)


@pytest.mark.slow
@pytest.mark.timeout(5400)  # hundreds of cycles are asked for now and then
async def test_kill_minus_9_under_load(killed: Cluster, pytestconfig: pytest.Config) -> None:
    cycles = pytestconfig.getoption("--kill-cycles", default=20)
    load, rng, began = Load(), random.Random(5), time.monotonic()
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


def audit(connection: Connection, load: Load) -> int:
    """Reads every queue whole: no gap, each acknowledged body where it was said to be, each sender's in its order."""
    found = 0
    for queue_id in range(QUEUES):
        stored_records = connection.read_queue(TOPIC, queue_id)
        assert [record.queue_offset for record in stored_records] == list(range(len(stored_records)))
        physical = [record.physical_offset for record in stored_records]
        assert physical == sorted(physical)
        stored = {record.queue_offset: zlib.crc32(record.body) for record in stored_records}
        lost = {at for at, crc in load.acknowledged[queue_id].items() if stored.get(at) != crc}
        assert not lost, f"queue {queue_id}: acknowledged, but not there: {sorted(lost)[:20]}"
        last: dict[bytes, int] = defaultdict(int)
        for record in stored_records:
            sender, number, _ = record.body.split(b":", 2)
            assert int(number) > last[sender], f"queue {queue_id}: {record.body[:20]!r} after {last[sender]}"
            last[sender] = int(number)
        found += len(stored_records)
    return found


def audit_index(connection: Connection, load: Load, rng: random.Random) -> None:
    """Asks for some of the acknowledged messages by key."""
    for key in rng.sample(sorted(load.keys), min(KEYS_ASKED, len(load.keys))):
        fields = {"topic": TOPIC, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
        found = records(connection.ask(QUERY_MESSAGE, fields).body)
        assert load.keys[key] in {zlib.crc32(record.body) for record in found}, f"{key} is not in the index"


def audit_delayed(connection: Connection, load: Load) -> None:
    """Waits for what was delayed: each acknowledged message is delivered at least once."""
    deadline = time.monotonic() + DELIVERY_DEADLINE_S
    while True:
        delivered = {
            zlib.crc32(record.body)
            for queue_id in range(QUEUES)
            for record in connection.read_queue(DELAYED_TOPIC, queue_id)
        }
        missing = load.delayed - delivered
        if not missing:
            return
        assert time.monotonic() < deadline, f"{len(missing)} of {len(load.delayed)} delayed messages never came"
        time.sleep(0.2)
