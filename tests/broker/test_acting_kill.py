"""A master with delayed messages is killed: its acting slave, and the restarted master, deliver all of them in time."""

import asyncio
import contextlib
import itertools
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pocketmq.broker.ha.master_log import master_log_offset
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader
from tests.broker.data_path import records
from tests.broker.running import connected, route, running_namesrv
from tests.broker.test_replication import send_header
from tests.patience import PATIENCE_S

KINDS = (
    ("DELAY\x011\x02", 1000), ("TIMER_DELAY_SEC\x011\x02", 1000), ("DELAY\x012\x02", 5000),
    ("TIMER_DELAY_SEC\x016\x02", 6000),
)  # fmt: skip
COUNT, GAP_S = 120, 0.01


class Process:
    """A broker process that can be killed and restarted with the same name, id, store and port."""

    def __init__(self, folder: Path, name_server: NameServer, name: str, broker_id: int) -> None:
        self.address = ""
        self._config = folder / f"{name}{broker_id}.conf"
        self._lines = [
            f"brokerName={name}", f"brokerId={broker_id}", f"brokerRole={'SLAVE' if broker_id else 'ASYNC_MASTER'}",
            f"storePathRootDir={folder / name}{broker_id}", f"namesrvAddr=127.0.0.1:{name_server.port}",
            "bindAddress=127.0.0.1", "enableSlaveActingMaster=true", "enableRemoteEscape=true",
            "mappedFileSizeCommitLog=1048576",
        ]  # fmt: skip
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        port = self.address.rpartition(":")[2] or "0"
        self._config.write_text("\n".join([*self._lines, f"listenPort={port}", ""]))
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "broker", "-c", str(self._config), stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while not (ready := re.search(r"boot success.*address=(\S+)", (await process.stdout.readline()).decode())):
                assert process.returncode is None
        self.address = ready[1]

    async def kill(self) -> None:
        """Kill it (SIGKILL)."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def load(client: RemotingClient, address: str, due_ms: dict[str, int], numbers: Iterator[int]) -> None:
    """Send messages of all kinds until the broker is gone; add each stored body with its earliest due time to `due_ms`."""
    with contextlib.suppress(OSError, TimeoutError, RemotingError):
        for number in numbers:
            properties, delay_ms = KINDS[number % len(KINDS)]
            body, sent_ms = f"{number} ", time.time_ns() // 1_000_000
            header = send_header(queue_id=number % 4, properties=properties)
            await client.call(address, RequestCode.SEND_MESSAGE_V2, header, body.encode())
            due_ms[body.strip()] = sent_ms + delay_ms
            await asyncio.sleep(GAP_S)


async def delivered(client: RemotingClient, *addresses: str) -> list[tuple[str, int]]:
    """Return body and store time in ms of the messages of T."""
    found = []
    for address, queue_id in itertools.product(addresses, range(4)):
        queue_offset = 0
        while True:
            header = PullMessageRequestHeader("reader", "T", queue_id, queue_offset, 32, 4, 0, 0, 0, "*")
            answer = await client.invoke(address, RequestCode.PULL_MESSAGE, header, timeout_s=PATIENCE_S)
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                break
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            for record in records(bytes(answer.body)):
                found.append((record.body.decode().strip(), record.store_timestamp_ms))
                queue_offset = record.queue_offset + 1
    return found


async def until_delivered(client: RemotingClient, bodies: set[str], *addresses: str) -> list[tuple[str, int]]:
    """Wait until all of `bodies` are delivered, and return all delivered messages."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        found = await delivered(client, *addresses)
        missing = bodies - {body for body, _ in found}
        if not missing:
            return found
        assert time.monotonic() < end_s, f"missing: {sorted(missing, key=int)}"
        await asyncio.sleep(0.1)


async def test_no_delayed_message_is_lost_or_early_when_a_master_is_killed(tmp_path: Path) -> None:
    async with running_namesrv(support_acting_master=True) as ns, connected() as client:
        brokers = [Process(tmp_path, ns, *which) for which in (("a", 0), ("a", 1), ("b", 0))]
        master, slave, other = brokers
        try:
            for broker in brokers:
                await broker.start()
            for broker in (master, other):
                header = CreateTopicRequestHeader("T", "TBW102", 4, 4, 6, "SINGLE_TAG")
                await client.call(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            due_ms: dict[str, int] = {}
            sending = asyncio.ensure_future(load(client, master.address, due_ms, itertools.count()))
            async with asyncio.timeout(PATIENCE_S):
                while len(due_ms) < COUNT or not await master_log_offset(client, slave.address, "commitLogMaxOffset"):
                    await asyncio.sleep(GAP_S)
                stored = dict(due_ms)
                end = await master_log_offset(client, master.address, "commitLogMaxOffset")
                while await master_log_offset(client, slave.address, "commitLogMaxOffset") < end:
                    await asyncio.sleep(GAP_S)
            await master.kill()
            await sending
            killed_ms = time.time_ns() // 1_000_000
            pending = {body for body, at_ms in stored.items() if at_ms > killed_ms + 1000}
            assert pending
            elsewhere = await until_delivered(client, pending, other.address)
            assert [at_ms - due_ms[body] for body, at_ms in elsewhere if at_ms < due_ms.get(body, 0)] == []
            found = await route(client, ns, "T")
            assert found is not None
            assert {"0": slave.address} in [one.broker_addrs for one in found.broker_datas]
            await master.start()
            everywhere = await until_delivered(client, due_ms.keys(), master.address, other.address)
            assert [at_ms - due_ms[body] for body, at_ms in everywhere if at_ms < due_ms.get(body, 0)] == []
            counts = Counter(body for body, _ in everywhere)
            late_ms = [at_ms - due_ms[body] for body, at_ms in elsewhere if body in pending]
            print(f"{len(due_ms)} messages, {sum(counts.values()) - len(counts)} twice, latest {max(late_ms)} ms")
            assert max(counts.values()) <= 3
        finally:
            for broker in brokers:
                await broker.kill()
