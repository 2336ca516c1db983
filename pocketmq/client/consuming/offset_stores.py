"""Places where a consumer keeps its consumer offsets: the brokers, or for broadcasting a file of this machine."""

import logging
import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.client.consuming.process_queue import ProcessQueue
from pocketmq.client.consuming.queue_requests import QueueRequests
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("client")

LOCAL_FOLDER: Final = ".rocketmq_offsets"


class BrokerOffsets:
    """Offsets at the brokers, at a slave while the master cannot be reached."""

    def __init__(self, requests: QueueRequests, zero_if_new: bool) -> None:
        """`zero_if_new`: see `QueueRequests.committed`."""
        self._requests, self._zero_if_new = requests, zero_if_new
        self._failures = RefusalLog(log)  # by broker

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the consumer offset of a queue, None if it has none."""
        return await self._requests.committed(queue, zero_if_new=self._zero_if_new)

    async def commit(self, works: Iterable[ProcessQueue]) -> None:
        """Store the consumer offsets of queues, as far as they have changed. Failures are logged."""
        for work in list(works):
            offset_now = work.consumer_offset
            if offset_now < 0 or offset_now == work.committed_offset:
                continue
            try:
                if await self._requests.commit_somewhere(work.queue, offset_now):
                    work.committed_offset = offset_now
                    self._failures.over(work.queue.broker_name)
            except (OSError, TimeoutError, RemotingError) as failure:
                text = f"consumer offset {offset_now} of {work.queue} could not be stored: {failure}"
                self._failures.refused(work.queue.broker_name, text)


class LocalOffsets:
    """Offsets in a file, FOLDER/CLIENT_ID/GROUP/offsets.json, in the form of Java's LocalFileOffsetStore.

    The previous content is kept beside it, as offsets.json.bak, and is read if the file is damaged.
    """

    def __init__(self, folder: Path | None, client_id: str, group: str) -> None:
        """`folder` None: ~/.rocketmq_offsets. Files are read at first use, with ValueError if they are damaged."""
        self.path = (folder or Path.home() / LOCAL_FOLDER) / client_id / group / "offsets.json"
        self._backup = self.path.with_name("offsets.json.bak")

    async def committed(self, queue: MessageQueue) -> int | None:
        return self._table.get(queue)

    async def commit(self, works: Iterable[ProcessQueue]) -> None:
        changed = {work.queue: work.consumer_offset for work in works if work.consumer_offset >= 0}
        if changed.items() <= self._table.items():
            return
        self._table.update(changed)
        try:
            self._write()
        except OSError as failure:
            log.warning("%s could not be written: %s", self.path, failure)

    @cached_property
    def _table(self) -> dict[MessageQueue, int]:
        problem: ValueError | None = None
        for path in (self.path, self._backup):
            try:
                return _parsed(path.read_bytes())
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("%s cannot be read: %s", path, error)
                problem = ValueError(f"{path} contains no consumer offsets: {error}; remove it to begin without")
        if problem is not None:
            raise problem
        return {}

    def _write(self) -> None:
        rows = ((fastjson.object_key(q.broker_name, q.queue_id, q.topic), offset) for q, offset in self._table.items())
        data = fastjson.dumps({"offsetTable": fastjson.object_map(rows)})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_name("offsets.json.tmp")
        unfinished.write_bytes(data)
        if self.path.exists():
            os.replace(self.path, self._backup)
        os.replace(unfinished, self.path)


OffsetStore = BrokerOffsets | LocalOffsets
"""Consumer offsets of one group."""


def _parsed(data: bytes) -> dict[MessageQueue, int]:
    table = fastjson.loads(data)["offsetTable"]
    return {msgspec.json.decode(key, type=MessageQueue): int(offset) for key, offset in table.items()}
