"""Load on a broker that is killed in the midst of it, by hand on the wire: nothing of ours decides what was acknowledged."""

import asyncio
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Protocol

from tests.interop.servers import Cluster, ServerProcess
from tests.interop.wire import SUCCESS, Answer, decode, encode

SENDERS = 16
FIRST_DEADLINE_S = 20  # a sync of a busy disk may take longer than the whole load
SMALL_FILES: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "maxMessageSize": 1 << 16,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
}


class Ask(Protocol):
    """Sends a request and waits for its answer. Raises ConnectionError or IncompleteReadError when there will be none."""

    def __call__(self, code: int, fields: dict[str, object], body: bytes = b"") -> Awaitable[Answer]: ...


class Load(ABC):
    """Senders with one request in flight each, so that what each one sent has an order."""

    def __init__(self) -> None:
        self.anything_taken = asyncio.Event()

    @abstractmethod
    async def send(self, sender: int, ask: Ask) -> None:
        """The next request of a sender; what was answered is to be remembered."""

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
    """Loads it for so long, or until something was acknowledged, and kills it."""
    load.anything_taken.clear()
    sending = asyncio.create_task(load.run(cluster.broker_address))
    await asyncio.wait({sending}, timeout=seconds)  # the load is what is waited for; it breaks by the kill
    await asyncio.wait_for(load.anything_taken.wait(), FIRST_DEADLINE_S)
    assert cluster.broker
    cluster.kill_broker()
    await asyncio.wait_for(sending, 10)


def kill_while_starting(cluster: Cluster, seconds: float) -> None:
    """Starts the broker once more, and kills it so long after, however far it has come."""
    command = [sys.executable, "-m", "broker", "-n", cluster.namesrv_address, "-c", str(cluster.folder / "broker.conf")]
    process = ServerProcess(command, cluster.folder / "broker.log")
    time.sleep(seconds)  # any moment will do, so nothing is waited for
    process.kill()
