"""Load on a broker that is killed. A hand-coded client is used, so that acknowledgements do not depend on PocketMQ's
code."""

import asyncio
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Protocol

from tests.interop.servers import Cluster, ServerProcess
from tests.interop.wire import SUCCESS, Answer, decode, encode
from tests.patience import PATIENCE_S

SENDERS = 16
SMALL_FILES: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "maxMessageSize": 1 << 16,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
}


class Ask(Protocol):
    """Sends a request and waits for its answer. Raises ConnectionError or IncompleteReadError when the connection ends."""

    def __call__(self, code: int, fields: dict[str, object], body: bytes = b"") -> Awaitable[Answer]: ...


class Load(ABC):
    """Senders with one request in flight each, so that the messages of each sender are ordered."""

    def __init__(self) -> None:
        self.anything_taken = asyncio.Event()

    @abstractmethod
    async def send(self, sender: int, ask: Ask) -> None:
        """Sends the next request of a sender and records its answer."""

    async def run(self, address: str) -> None:
        """Sends until the connection breaks."""
        await asyncio.gather(*(self._run(address, sender) for sender in range(SENDERS)))

    async def _run(self, address: str, sender: int) -> None:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def ask(code: int, fields: dict[str, object], body: bytes = b"") -> Answer:
            writer.write(encode(code, 1, fields, body))
            answer = decode(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
            if answer.code == SUCCESS:
                self.anything_taken.set()
            return answer

        try:
            while True:
                await self.send(sender, ask)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def load_until_killed(cluster: Cluster, load: Load, seconds: float) -> None:
    """Loads the broker for some time, at least until a message is acknowledged, and kills it."""
    load.anything_taken.clear()
    sending = asyncio.create_task(load.run(cluster.broker_address))
    await asyncio.wait({sending}, timeout=seconds)  # ends earlier only if the broker fails
    await asyncio.wait_for(load.anything_taken.wait(), PATIENCE_S)
    assert cluster.broker
    cluster.kill_broker()
    await asyncio.wait_for(sending, PATIENCE_S)


def kill_while_starting(cluster: Cluster, seconds: float) -> None:
    """Starts the broker again and kills it after some time, at any stage of its start."""
    command = [sys.executable, "-m", "broker", "-n", cluster.namesrv_address, "-c", str(cluster.folder / "broker.conf")]
    process = ServerProcess(command, cluster.folder / "broker.log")
    time.sleep(seconds)  # any moment will do, so nothing is waited for
    process.kill()
