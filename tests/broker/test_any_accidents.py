"""Random valid requests under SYNC_FLUSH, with kills and power cuts at random changes of the disk.

Each acknowledged message is in the log afterwards, at the acknowledged offset; no start and no handler fails.
"""

import asyncio
import logging

import pytest

from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.remoting.codes import RequestCode
from tests.broker.any_requests import AnyRequests
from tests.broker.data_path import AtOnce, DataPath, SteppedClock, StubChannel
from tests.store.power_cut_disk import PowerCutDisk, Stopped
from tests.support.amount import cases

SEEDS, LIVES = cases(3, 16), 4
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
SMALL = {
    "flush_disk_type": "SYNC_FLUSH",
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 16,
    "max_index_num": 50,
}


class Walk:
    """Several processes on one disk, one after the other."""

    def __init__(self, seed: int) -> None:
        self.requests = AnyRequests(seed)
        self.rng = self.requests.random
        self.disk, self.clock = PowerCutDisk(rng=self.rng), SteppedClock()
        self.acknowledged: dict[int, bytes] = {}  # physical offset -> body, which is empty for batches
        self.count = 0

    async def run(self) -> None:
        for life in range(LIVES):
            is_last = life == LIVES - 1
            self.disk.changes_left = None if is_last else self.rng.choice((None, *map(self.rng.randrange, (40, 400, 3000))))
            try:
                await self.live()
            except Stopped:
                assert not is_last
            self.disk = self.disk.killed() if self.rng.random() < 0.3 else self.disk.power_cut(self.rng)
            now_ms, self.clock = self.clock.message_time_ms(), SteppedClock()
            self.clock.advance(now_ms - self.clock.message_time_ms() + self.rng.choice((0, 1, 60_000)))

    async def live(self) -> None:
        path = DataPath(disk=self.disk, clock=self.clock, **SMALL)  # type: ignore[arg-type]
        path.services.gate._loop = AtOnce()  # type: ignore[assignment]
        for physical_offset, body in self.acknowledged.items():
            record = path.store.commit_log.record_at(physical_offset)
            assert record is not None and body in bytes(record), f"the message acknowledged at {physical_offset} is lost"
        channels, waiting = [StubChannel() for _ in range(3)], dict[int, bytes]()
        chance, choice = self.rng.random, self.rng.choice
        for (code, frame), _ in zip(self.requests, range(self.rng.randrange(20, 400)), strict=False):
            self.ask(path, code, frame, choice(channels), waiting)
            if chance() < 0.3:
                path.turn()
            if chance() < 0.1:
                path.turn()
                path.store.flush_service.run_once()
            if chance() < 0.05:
                self.clock.advance(choice((1, 1000, 5000, 60_000, 600_000)))
                await asyncio.sleep(0)
            self.hear(channels, waiting)
            if self.disk.stopped:
                raise Stopped
        if chance() < 0.4:
            path.turn()
            path.store.flush_service.run_once()
            self.hear(channels, waiting)

    def ask(
        self,
        path: DataPath,
        code: RequestCode,
        frame: tuple[int, bytes, bytes],
        channel: StubChannel,
        waiting: dict[int, bytes],
    ) -> None:
        serialize_type, header, body = frame
        self.count += 1
        if code in SENDS and b"WAIT" not in header:  # a message with the WAIT property may be lost
            waiting[self.count] = b"" if code == RequestCode.SEND_BATCH_MESSAGE else body
        path.serve((serialize_type, header.replace(b'"opaque":1', b'"opaque":%d' % self.count), body), channel)

    def hear(self, channels: list[StubChannel], waiting: dict[int, bytes]) -> None:
        for channel in channels:
            for answer in channel.take():
                self.requests.answered(answer)
                message_id = (answer.ext or {}).get("msgId", "").partition(",")[0]
                if answer.is_response and answer.code == 0 and answer.opaque in waiting and message_id:
                    self.acknowledged[decode_message_id(message_id)[1]] = waiting.pop(answer.opaque)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_acknowledged_messages_survive_kills_and_power_cuts(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    walk = Walk(seed)
    await walk.run()
    failures = [row for row in caplog.records if row.exc_info and not issubclass(row.exc_info[0], Stopped)]
    assert [row.getMessage() for row in failures] == []
