"""Healthy stores of every kind: a broker opens them without a warning, and `pocketmq store verify` finds nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.file_disk import FileDisk
from tests.broker.running import ask, connected, running_broker, running_namesrv, until
from tests.broker.timed import DAY
from tests.golden.golden_files import unpack_golden
from tests.store_tools.made_stores import verified

LEVEL = "DELAY\x013\x02"
TIMER = "TIMER_DELAY_SEC\x013600\x02"
SOON = "TIMER_DELAY_MS\x01200\x02"


@asynccontextmanager
async def broker_on(
    root: Path, *name_servers: Any, role: str = "ASYNC_MASTER", files: dict[str, int] | None = None, **config: Any
) -> AsyncIterator[Broker]:
    store = {"store_path_root_dir": str(root), "broker_role": role, **(files or {})}
    async with running_broker(*name_servers, disk=FileDisk(), store=store, **config) as broker:
        yield broker


async def send(client: RemotingClient, broker: Broker, topic: str, properties: str = "KEYS\x01k\x02") -> None:
    header = SendMessageRequestHeaderV2("pg", topic, "TBW102", 4, 0, 0, 0, 0, properties=properties)
    answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"body")
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def send_all_kinds(client: RemotingClient, broker: Broker) -> None:
    for properties in ("KEYS\x01k\x02", LEVEL, TIMER, SOON):
        await send(client, broker, "T", properties)
    await until(lambda: broker.services.store.max_offset("T", 0) == 2)


async def delete(client: RemotingClient, broker: Broker, topic: str) -> None:
    answer = await ask(client, broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def never_used(root: Path) -> None:
    async with broker_on(root):
        pass


async def one_message(root: Path) -> None:
    async with connected() as client, broker_on(root) as broker:
        await send(client, broker, "T")


async def levels_and_timers(root: Path) -> None:
    async with connected() as client, broker_on(root) as broker:
        await send_all_kinds(client, broker)


async def deleted_topics(root: Path) -> None:
    async with connected() as client, broker_on(root) as broker:
        for topic in ("Gone", "Again"):
            await send(client, broker, topic)
            await delete(client, broker, topic)
        await send(client, broker, "Again")
        await send_all_kinds(client, broker)


async def slave(root: Path) -> None:
    async with AsyncExitStack() as stack:
        ns = await stack.enter_async_context(running_namesrv())
        client = await stack.enter_async_context(connected())
        master = await stack.enter_async_context(broker_on(root.with_name("master"), ns))
        await send_all_kinds(client, master)
        copy = await stack.enter_async_context(broker_on(root, ns, role="SLAVE", broker_id=1))
        await until(lambda: copy.services.store.max_physical_offset == master.services.store.max_physical_offset)
        progress = root / "config" / "timercheck"
        await until(lambda: progress.exists() and any(progress.read_bytes()))


async def promoted_slave(root: Path) -> None:
    await slave(root)
    async with connected() as client, broker_on(root) as broker:
        await send(client, broker, "T")


FILE_SIZES = {
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "mappedFileSizeTimerLog": "mapped_file_size_timer_log",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
}
STORES = (never_used, one_message, levels_and_timers, deleted_topics, slave, promoted_slave)


@pytest.mark.parametrize("make", STORES)
async def test_a_healthy_store_is_valid_and_opens_without_a_warning(
    make: Callable[[Path], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    await make(root)
    await check_is_silent(root, caplog, role="SLAVE" if make is slave else "ASYNC_MASTER")


@pytest.mark.parametrize("days", [0.1, 1.1, 6.9, 7.1, 8.1, 8.9, 9.1, 60])
@pytest.mark.parametrize("name", ["v4_clean", "v5_clean"])
async def test_a_store_of_apache_is_valid_and_opens_without_a_warning(
    name: str, days: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`days`: how long it stood still. The wheel of 5.5.0 reaches back seven days; rolled units lie a day or two ahead."""
    root = unpack_golden(name, tmp_path)
    clock = VirtualClock(int.from_bytes((root / "checkpoint").read_bytes()[:8], "big") + int(days * DAY))
    lines = (tmp_path / "broker.conf").read_text().splitlines()
    conf = dict(line.split("=", 1) for line in lines if "=" in line)
    files = {name: int(conf[key]) for key, name in FILE_SIZES.items() if key in conf}
    await check_is_silent(root, caplog, files=files, clock=clock)


async def check_is_silent(root: Path, caplog: pytest.LogCaptureFixture, role: str = "ASYNC_MASTER", **how: Any) -> None:
    for _ in range(2):
        found = await asyncio.to_thread(verified, root)
        assert (found.exit_code, dict(found.findings.counts)) == (0, {})
        caplog.clear()
        async with broker_on(root, role=role, broker_id=int(role == "SLAVE"), **how):
            pass
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
