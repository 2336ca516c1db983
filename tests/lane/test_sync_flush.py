"""SYNC_FLUSH with the compiled lane: its answers wait for the sync of their records, as those of the Python path do."""

import asyncio
import itertools
import random
from typing import Any

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import decode_header, encode_request
from pocketmq.remoting.frame import FrameBuffer
from tests.broker.data_path import send_header, until
from tests.lane.mixes import SQL, requests
from tests.lane.twins import Side, Twins, needs_lane
from tests.support.amount import cases

pytestmark = needs_lane

BAD_DISK = OSError(5, "bad disk")


class SyncedByHand(Twins):
    """Both sides with SYNC_FLUSH, where the test decides what is synced; `requested`: the syncs that each requested."""

    def __init__(self, **store: Any) -> None:
        super().__init__(expressions=SQL, flush_disk_type="SYNC_FLUSH", **store)
        self.requested: list[list[int]] = [[], []]
        for side, requested in zip((self.twin, self.laned), self.requested, strict=True):
            side.services.store.request_sync = requested.append

    async def synced(self, end_offset: int, error: OSError | None = None) -> dict[int, bytes]:
        """Report a sync to both sides, and return what they answer then, which is the same."""
        for side in (self.twin, self.laned):
            side.services.store.flushed(end_offset, error)
        await asyncio.sleep(0)
        return self.end_turn()


def codes(data: bytes) -> list[tuple[int, int]]:
    """Return (opaque, code) of answers."""
    commands = [decode_header(kind, header) for kind, header, _ in FrameBuffer().feed(data)]
    return [(command.opaque, command.code) for command in commands]


async def fill(twins: SyncedByHand) -> None:
    """Send the first message of each queue, which is not ordinary."""
    for queue_id in range(4):
        await twins.receive(0, sends(-1 - queue_id, queue_id=queue_id))
    twins.end_turn()
    await twins.synced(twins.twin.services.store.max_physical_offset)


def sends(*opaques: int, queue_id: int = 0) -> bytes:
    header = send_header("UNIQ_KEY\x01u\x02WAIT\x01true\x02TAGS\x01a", queue_id=queue_id)
    frames = (encode_request(RequestCode.SEND_MESSAGE_V2, header, b"x", opaque) for opaque in opaques)
    return b"".join(itertools.chain.from_iterable(frames))


@pytest.mark.parametrize("seed", range(cases(2, 4)))
async def test_random_requests_give_the_same_bytes_whenever_they_are_synced(seed):
    rng, twins = random.Random(seed), SyncedByHand()
    frames, ends, synced = requests(seed), [], 0
    await fill(twins)
    for _ in range(300):
        for connection in rng.sample(range(4), rng.randrange(1, 4)):
            await twins.receive(connection, b"".join(itertools.islice(frames, rng.choice((1, 2, 5, 12)))))
        twins.end_turn()
        ends.append(twins.twin.services.store.max_physical_offset)
        assert twins.requested[0] == twins.requested[1]
        if rng.random() < 0.5:
            synced = rng.choice([end for end in ends if end >= synced])
            await twins.synced(synced)
        await asyncio.sleep(0)
    await twins.synced(ends[-1])
    twins.compare_files()
    assert twins.laned.in_lane > 0
    twins.close()


async def test_answers_wait_for_the_sync_of_their_records():
    twins = SyncedByHand()
    await fill(twins)
    await twins.receive(1, sends(1, 2, 3))
    await twins.receive(2, sends(4))
    assert twins.end_turn() == {}
    first = twins.laned.services.store.max_physical_offset
    await twins.receive(1, sends(5))
    assert twins.end_turn() == {}
    assert twins.requested[1][-2:] == [first, twins.laned.services.store.max_physical_offset]
    for end_offset, answers in (first - 1, {1: [1, 2, 3]}), (first, {2: [4]}), (first + 1, {}), (first + 1000, {1: [5]}):
        got = await twins.synced(end_offset)
        assert {number: codes(data) for number, data in got.items()} == {
            number: [(opaque, 0) for opaque in opaques] for number, opaques in answers.items()
        }
    assert twins.laned.in_lane == len(sends(1, 2, 3, 4, 5))
    twins.close()


async def test_after_a_failed_sync_no_send_is_acknowledged():
    twins = SyncedByHand()
    await fill(twins)
    await twins.receive(1, sends(1, 2))
    assert twins.end_turn() == {}
    got = await twins.synced(twins.laned.services.store.max_physical_offset, BAD_DISK)
    assert codes(got[1]) == [(1, ResponseCode.SERVICE_NOT_AVAILABLE), (2, ResponseCode.SERVICE_NOT_AVAILABLE)]
    assert b"bad disk" in got[1] and b"msgId" not in got[1]
    twins.close()


async def test_sync_that_takes_too_long_is_answered_with_the_message_ids():
    twins = SyncedByHand(sync_flush_timeout=20)
    await fill(twins)
    await twins.receive(1, sends(1, 2))
    assert twins.end_turn() == {}
    for side in (twins.twin, twins.laned):
        side.path.clock.seconds += 1
    await until(lambda: all(_has_answers(side) for side in (twins.twin, twins.laned)))
    got = twins.end_turn()
    assert codes(got[1]) == [(1, ResponseCode.FLUSH_DISK_TIMEOUT), (2, ResponseCode.FLUSH_DISK_TIMEOUT)]
    assert got[1].count(b"msgId") == 2
    assert await twins.synced(twins.laned.services.store.max_physical_offset) == {}
    twins.close()


async def test_sends_are_not_read_while_many_wait_for_a_sync(monkeypatch):
    monkeypatch.setattr("pocketmq.remoting.channel.DEFERRED_MAX", 8)
    twins = SyncedByHand()
    await fill(twins)
    await twins.receive(1, sends(*range(6)))
    assert not _is_paused(twins.twin) and not _is_paused(twins.laned)
    await twins.receive(1, sends(*range(6, 10)))
    twins.end_turn()
    assert _is_paused(twins.twin) and _is_paused(twins.laned)
    await twins.synced(twins.laned.services.store.max_physical_offset)
    assert not _is_paused(twins.twin) and not _is_paused(twins.laned)
    twins.close()


def _has_answers(side: Side) -> bool:
    channel, _ = side._connections[1]
    return bool(channel._out)


def _is_paused(side: Side) -> bool:
    channel, _ = side._connections[1]
    return channel._unread_because != 0
