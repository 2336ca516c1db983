"""Random valid requests: no handler raises an unexpected exception, and the store stays consistent."""

import asyncio
import logging

import pytest

from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.message_store import MessageStore
from tests.broker.any_requests import AnyRequests
from tests.broker.data_path import DataPath, StubChannel
from tests.patience import PATIENCE_S
from tests.support.amount import cases

SEEDS, REQUESTS = cases(3, 20), 2000


def rebuilt(path: DataPath) -> MessageStore:
    """Return the store of a stopped broker, with queues and index rebuilt from the log."""
    store = MessageStore(
        MessageStoreConfig("/store", mapped_file_size_commit_log=32 << 20, max_hash_slot_num=1000, max_index_num=5000),
        path.disk,
        path.clock,
    )
    store.load(rebuild=True)
    return store


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_random_requests_leave_a_consistent_store(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    requests = AnyRequests(seed)
    choice, chance = requests.random.choice, requests.random.random
    path = DataPath({"enable_property_filter": chance() < 0.5, "enable_calc_filter_bit_map": chance() < 0.3})
    channels = [StubChannel() for _ in range(3)]
    codes = set()
    for (code, frame), _ in zip(requests, range(REQUESTS), strict=False):
        channel = choice(channels)
        path.serve(frame, channel)
        if chance() < 0.3:
            path.turn()
        if chance() < 0.05:
            path.clock.advance(choice([1, 1000, 5000, 60_000, 600_000]))
            await asyncio.sleep(0)
        for answer in channel.take():
            requests.answered(answer)
            codes.add((code, answer.code))
        if chance() < 0.02:
            channel.close()
            channels[channels.index(channel)] = StubChannel()
    path.turn()
    async with asyncio.timeout(PATIENCE_S):
        while path.services.topics.leaving:  # topics are deleted queue by queue
            await asyncio.sleep(0)
    assert [row.getMessage() for row in caplog.records if row.exc_info] == []
    assert sum(answer == 0 for _, answer in codes) > 25, "that many kinds of requests were served"

    log = path.store.commit_log
    end, offsets = log.max_offset, {key: offset for key, offset in log.tail.queue_offsets.items() if offset}
    path.store.shutdown()
    again = rebuilt(path).commit_log
    assert again.max_offset == end, "each record is at its physical offset"
    assert {key: offset for key, offset in again.tail.queue_offsets.items() if offset} == offsets
