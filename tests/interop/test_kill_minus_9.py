"""kill -9 under load, again and again on one store: with SYNC_FLUSH, what was acknowledged is there, in order.

What the kernel holds survives a kill, so this shows recovery and the order of things, not the fsync itself: that is for the
simulated disk to show. The load speaks the wire by hand; nothing of ours decides what counts as acknowledged.
"""

import asyncio
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator

import pytest
from servers import Cluster, Flavour
from wire import SEND_MESSAGE_V2, SUCCESS, Connection, decode, encode, send_fields

TOPIC, QUEUES, SENDERS = "Killed-topic", 4, 16
LOAD_MIN_S, LOAD_MAX_S = 0.05, 0.3


@pytest.fixture
def killed(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(
        tmp_path_factory.mktemp("killed"), flavour, flushDiskType="SYNC_FLUSH", mappedFileSizeCommitLog=4 << 20,
        maxMessageSize=1 << 16,
    )  # fmt: skip
    yield running
    running.close()


class Load:
    """Senders with one message in flight each, so that what each one sent has an order; remembers what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)  # queue -> queue offset -> CRC of the body
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
                body = f"{sender}:{self._numbers[sender]}:".encode() + self._random.randbytes(self._random.randrange(1500))
                writer.write(encode(SEND_MESSAGE_V2, self._numbers[sender], send_fields(TOPIC, queue_id), body))
                answer = decode(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
                if answer.code == SUCCESS:
                    self.acknowledged[queue_id][int(answer.ext["queueOffset"])] = zlib.crc32(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def load_until_killed(cluster: Cluster, load: Load, seconds: float) -> None:
    sending = asyncio.create_task(load.run(cluster.broker_address))
    await asyncio.wait({sending}, timeout=seconds)  # the load is what is waited for; it breaks by the kill
    assert cluster.broker
    cluster.kill_broker()
    await asyncio.wait_for(sending, 10)


@pytest.mark.slow
async def test_kill_minus_9_under_load(killed: Cluster, pytestconfig: pytest.Config) -> None:
    cycles = pytestconfig.getoption("--kill-cycles", default=50)
    load, rng, began = Load(), random.Random(5), time.monotonic()
    for cycle in range(cycles):
        killed.start_broker()
        with Connection(killed.broker_address) as connection:
            if cycle == 0:
                connection.create_topic(TOPIC, QUEUES)
            for queue_id, acknowledged in load.acknowledged.items():
                assert connection.max_offset(TOPIC, queue_id) > max(acknowledged), f"cycle {cycle}, queue {queue_id}"
        before = sum(map(len, load.acknowledged.values()))
        await load_until_killed(killed, load, rng.uniform(LOAD_MIN_S, LOAD_MAX_S))
        assert sum(map(len, load.acknowledged.values())) > before, f"cycle {cycle} acknowledged nothing"
    killed.start_broker()
    total = sum(map(len, load.acknowledged.values()))
    found = audit(killed, load)
    print(f"\n{cycles} kills in {time.monotonic() - began:.0f} s: {total} acknowledged, {found} found, none missing")


def audit(killed: Cluster, load: Load) -> int:
    """Reads every queue whole: no gap, each acknowledged body where it was said to be, each sender's in its order."""
    found = 0
    with Connection(killed.broker_address) as connection:
        for queue_id in range(QUEUES):
            records = connection.read_queue(TOPIC, queue_id)
            assert [record.queue_offset for record in records] == list(range(len(records)))
            physical = [record.physical_offset for record in records]
            assert physical == sorted(physical)
            stored = {record.queue_offset: zlib.crc32(record.body) for record in records}
            lost = {at for at, crc in load.acknowledged[queue_id].items() if stored.get(at) != crc}
            assert not lost, f"queue {queue_id}: acknowledged, but not there: {sorted(lost)[:20]}"
            last: dict[bytes, int] = defaultdict(int)
            for record in records:
                sender, number, _ = record.body.split(b":", 2)
                assert int(number) > last[sender], f"queue {queue_id}: {record.body[:20]!r} after {last[sender]}"
                last[sender] = int(number)
            found += len(records)
    return found
