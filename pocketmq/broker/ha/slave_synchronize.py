"""SlaveSynchronize: the slave's copies of its master's tables, requested over the master's port for clients.

As in Apache: topics and consumer groups are replaced if their version differs; consumer offsets are merged, so that those
committed here while the master was away stay until the master has its own; delay offsets and the timer checkpoint are
written to files for a later start of this store as a master's. A master that does not know one of the requests (4.9.4 knows
no request modes and timers) is not asked for it again.

When a record of an unknown topic arrives, the tables are copied at once, so that a slave started as master knows the topics
of all its messages.

Unlike in Apache, progress is taken only once this log has everything that the master's had when it reported the progress. A
master that dies could otherwise leave offsets behind messages that this slave does not have, and these would be skipped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from pocketmq.broker.context import Context
from pocketmq.broker.delay.level_source import LevelSource
from pocketmq.broker.ha.left_queues import LeftQueues
from pocketmq.broker.ha.master_log import master_log_offset
from pocketmq.broker.tables.config_manager import ConfigManager, CopiedRowsManager
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.message_request_mode import MessageRequestModeManager
from pocketmq.broker.tables.row_limits import QUEUE_NUMS_MAX
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import DataVersion
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.offset import OffsetResponseHeader, QueueRequestHeader
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer
from pocketmq.store.format.layout import TIMER_CHECKPOINT_FILE_SIZE, TIMER_CHECKPOINT_SIZE, TIMER_CHECKPOINT_STRUCT
from pocketmq.store.format.message import QUEUE_OFFSET_MAX, Arrival

log = logging.getLogger("broker")

TABLES_S: Final = 10.0
DELAYS_S: Final = 3.0
"""Interval at which the progress of delay levels and timers is requested. A slave started as a master repeats the
deliveries since then."""
DELAYS_ACTING_S: Final = 0.5
"""The same for a slave that may act as master (enableSlaveActingMaster)."""
TIMEOUT_S: Final = 5.0
AHEAD: Final = 1000
"""Increment that an acting master adds to the copied version counters, so that its tables are newer than the master's."""
_COPIED_OFFSETS: Final[tuple[int, ...]] = (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET)
LOG_LOOK_S: Final = 0.05
"""Interval at which the slave checks whether its log has reached the master's end."""


Copy = Callable[[], Awaitable[None]]


class SlaveSynchronize:
    """Requests the tables of the master at intervals, from `set_master` on."""

    def __init__(
        self, context: Context, client: RemotingClient, topics: TopicConfigManager, groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager, schedule: LevelSource, request_modes: MessageRequestModeManager,
        is_following: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`is_following` returns whether the log is being copied, so that it is known to be the master's."""
        self._store = context.store
        self._timers = context.timers
        self._client = client
        self._writer = topics.writer
        self._topics = topics
        self._rows: dict[int, CopiedRowsManager[Any]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups,
        }
        self._offsets = offsets
        self._schedule = schedule
        self._request_modes = request_modes
        self._is_following = is_following
        self._left_queues = LeftQueues(context.store, offsets, topics)
        self._checkpoint = b""
        self._master_address: str | None = None
        self._delays_s = min(DELAYS_S, DELAYS_ACTING_S) if context.config.enable_slave_acting_master else DELAYS_S
        self._is_paused = False
        self._versions = {code: DataVersion(0, 0, 0) for code in _COPIED_OFFSETS}
        self._unknown: set[int] = set()
        self._failures = RefusalLog(log)
        self._repeating: list[Timer] = []
        self._running: dict[Copy, asyncio.Task[None]] = {}
        self._repeat: set[Copy] = set()
        self._unknown_topics: set[str] = set()
        """Topics for which the tables were requested since the last regular copy."""

    def set_master(self, ha_address: str | None, master_address: str) -> None:
        """Copy the tables of the broker at `master_address`, at once and at intervals."""
        self._master_address = master_address
        self._unknown.clear()
        if not self._repeating:
            self._repeating = [
                self._timers.every(TABLES_S, self._copy_regularly),
                self._timers.every(self._delays_s, lambda: self._begin(self._copy_delays)),
            ]
        self._begin(self._copy_tables)
        self._begin(self._copy_delays)

    async def pause(self) -> None:
        """Copy nothing until `resume`: this slave acts as master, and its tables are ahead of the master's."""
        self._is_paused = True
        running = tuple(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._writer is not None:
            await self._writer.run(lambda: None)  # waits for the writes of copied tables
        for version in self._versions.values():
            version.counter += AHEAD

    def resume(self) -> None:
        """Go on copying."""
        self._is_paused = False

    def version(self, code: int) -> DataVersion:
        """Return the version of a copied table, by which a returning master of 5.x knows whether it is ahead of its own."""
        return self._versions[code]

    def stop(self) -> None:
        """Request nothing more."""
        for timer in self._repeating:
            timer.cancel()
        for task in self._running.values():
            task.cancel()

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Copy the tables if records of a topic that this broker does not know have arrived in the log."""
        arrivals = tuple(arrivals)
        self._left_queues.arrived(arrivals)
        known, requested = self._topics.table, self._unknown_topics
        found = {one.topic for one in arrivals if one.topic not in known and one.topic not in requested}
        if found and self._master_address is not None:
            requested |= found
            self._begin(self._copy_tables, is_urgent=True)

    def _copy_regularly(self) -> None:
        self._unknown_topics.clear()
        self._begin(self._copy_tables)

    def _begin(self, copy: "Copy", is_urgent: bool = False) -> None:
        """Begin to copy. An urgent copy follows a running one, because that may have been answered before the change."""
        if self._is_paused:
            return
        if copy not in self._running:
            task = self._running[copy] = asyncio.ensure_future(self._logged(copy))
            task.add_done_callback(lambda task: self._ended(copy, task.cancelled()))
        elif is_urgent:
            self._repeat.add(copy)

    def _ended(self, copy: "Copy", is_cancelled: bool) -> None:
        self._running.pop(copy)
        if copy in self._repeat and not is_cancelled:
            self._repeat.discard(copy)
            self._begin(copy)

    async def _logged(self, copy: "Copy") -> None:
        try:
            await copy()
        except (OSError, TimeoutError, RemotingError, ValueError, TypeError, AttributeError) as error:
            why = f"the tables of master {self._master_address} cannot be copied: {reason(error)}"
            self._failures.refused("copy", why)
        else:
            self._failures.over("copy")

    # --- tables -----------------------------------------------------------------------------------------------------

    async def _copy_tables(self) -> None:
        """Copy everything but the progress of delays. Raises OSError, TimeoutError, RemotingError or ValueError."""
        for code, manager in self._rows.items():
            if (document := await self._document(code)) is not None:
                version = msgspec.convert(document.get("dataVersion") or {}, DataVersion, strict=False)
                if version != manager.data_version:
                    if manager is self._topics:
                        rows = document.get(manager.TABLE_KEY) or {}
                        self._left_queues.deleted(topic for topic in manager.table if topic not in rows)
                    manager.replace(document.get(manager.TABLE_KEY) or {}, version)
        if (document := await self._document(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)) is not None:
            self._change(self._request_modes, self._request_modes.admitted(document))
        if self._left_queues.has_some and self._is_following() and self._writer is not None:
            await self._until_copied()
            await self._left_queues.drop(self._is_dispatched, self._max_offset, self._writer.run)
        covered_to = self._store.max_physical_offset
        if (document := await self._document(RequestCode.GET_ALL_CONSUMER_OFFSET)) is not None:
            table = msgspec.convert(document.get("offsetTable") or {}, dict[str, dict[int, int]], strict=False)
            await self._until_copied()
            self._offsets.merge(table, covered_to)

    async def _max_offset(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue at the master. Raises as `_copy_tables`."""
        header = QueueRequestHeader(topic, queue_id)
        answer = await self._client.call(self._address, RequestCode.GET_MAX_OFFSET, header, timeout_s=TIMEOUT_S)
        return answer.header(OffsetResponseHeader).offset

    async def _copy_delays(self) -> None:
        """Copy the progress of delay levels and timers. Raises as `_copy_tables`."""
        document = await self._document(RequestCode.GET_ALL_DELAY_OFFSET)
        checkpoint = await self._answer(RequestCode.GET_TIMER_CHECK_POINT)
        await self._until_copied()
        if document is not None:
            offsets = msgspec.convert(document.get("offsetTable") or {}, dict[int, int], strict=False)
            possible = {
                level: next_offset
                for level, next_offset in offsets.items()
                if 0 < level <= QUEUE_NUMS_MAX and 0 <= next_offset <= QUEUE_OFFSET_MAX
            }
            self._change(self._schedule, {"offsetTable": possible})
        if len(checkpoint) == TIMER_CHECKPOINT_SIZE and any(checkpoint) and checkpoint != self._checkpoint:
            self._checkpoint, store = checkpoint, self._store
            path = store.config.store_path("config/timercheck")
            self._write(lambda: store.disk.replace_file(path, _timercheck(checkpoint)))

    async def _until_copied(self) -> None:
        """Wait until this log has everything that the master's has now. Raises as `_copy_tables`."""
        end_offset = await master_log_offset(self._client, self._address, "commitLogMaxOffset")
        while self._store.max_physical_offset < end_offset:
            await asyncio.sleep(LOG_LOOK_S)

    async def _is_dispatched(self, end_offset: int) -> bool:
        """Return whether the master's queues have its log up to `end_offset`. Raises as `_copy_tables`."""
        log_end = await master_log_offset(self._client, self._address, "commitLogMaxOffset")
        # Asked second: if the log grows meanwhile, it is too much, not too little.
        return log_end - await master_log_offset(self._client, self._address, "dispatchBehindBytes") >= end_offset

    @property
    def _address(self) -> str:
        assert self._master_address is not None, "set by `set_master`"
        return self._master_address

    def _change(self, manager: ConfigManager, document: dict[str, Any]) -> None:
        """Load a table from the master's document, and write it if it changed."""
        before = manager.encode()
        manager.decode(document)
        if (after := manager.encode()) != before:
            self._write(lambda: manager.file.persist(after))

    def _write(self, write: Callable[[], object]) -> None:
        """Write a file for which the loop must not wait."""
        assert self._writer is not None, "a broker has a table writer"
        self._writer.run(write).add_done_callback(self._written)

    def _written(self, done: "asyncio.Future[Exception | None]") -> None:
        if error := done.result():
            self._failures.refused("write", f"a copy of the master's tables cannot be written: {error}")

    async def _document(self, code: int) -> dict[str, Any] | None:
        """Return the master's answer, or None if it does not know the request or answers nothing."""
        body = await self._answer(code)
        if not body:
            return None
        document = fastjson.loads(body)
        if not isinstance(document, dict):
            raise ValueError(f"the answer to request code {code} is not a JSON object")
        if code in self._versions and document.get("dataVersion"):
            self._versions[code] = msgspec.convert(document["dataVersion"], DataVersion, strict=False)
        return document

    async def _answer(self, code: int) -> bytes:
        if code in self._unknown:
            return b""
        answer = await self._client.invoke(self._address, code, timeout_s=TIMEOUT_S)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._unknown.add(code)
            return b""
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(answer.code, answer.remark or f"request code {code}: response code {answer.code}")
        return bytes(answer.body)


def _timercheck(checkpoint: bytes) -> bytes:
    """Return the master's checkpoint as the file of a 5.x slave. Its fourth field limits the offsets that a slave enters.

    The second is a position in the broker's own timer log, which is empty here.
    """
    numbers = list(TIMER_CHECKPOINT_STRUCT.unpack(checkpoint))
    numbers[1] = 0
    numbers[3] = numbers[2]
    return TIMER_CHECKPOINT_STRUCT.pack(*numbers).ljust(TIMER_CHECKPOINT_FILE_SIZE, b"\0")
