"""HAClient: a slave's connection to its master (Apache: HAClient).

The slave copies the log of the master that the name servers name, or of `haMasterAddress`. If the connection ends it
connects again, once a second. Before a log that is not empty is continued, its last record is compared with the master's: a
slave whose log has diverged from the master's (LogDivergedError) copies nothing, and logs where the two diverge.
"""

import asyncio
import logging
import random
from functools import partial
from typing import Any, Final, cast

from pocketmq.broker.context import Context
from pocketmq.broker.ha.master_log import master_log_offset, master_record
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.tls import ReloadingContext
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.event import Event
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer
from pocketmq.store.format.layout import REPLICA_REPORT_STRUCT
from pocketmq.store.ha.log_comparison import (
    LogDivergedError,
    diverged_at,
    is_lost_by_other,
    is_same,
    offsets_in_file,
    tail_differs_at,
)
from pocketmq.store.ha.log_follower import FollowError, LogFollower

log = logging.getLogger("broker")

RETRY_S: Final = 1.0
"""Delay before the next attempt to connect: a random time from half of this to all of it."""
CONNECT_TIMEOUT_S: Final = 3.0
SYNC_TIMEOUT_S: Final = 30.0
PARTED_RETRY_S: Final = 30.0
LOOK_S: Final = 1.0
DISPATCH_S: Final = 0.001
"""Longest delay of the dispatch of records while the log arrives in large pieces."""


class HAClient:
    """Keeps the log of this slave a copy of its master's."""

    def __init__(self, context: Context, client: RemotingClient, tls: ReloadingContext | None = None) -> None:
        """`client` is for the master's port for clients, `tls` for its port for slaves; None: plain connections."""
        store = context.store
        self.follower = LogFollower(
            store.commit_log, store.delay_levels.tags_code, store.max_physical_offset, store.config.check_crc_on_recover,
            store.dispatch_window,
        )  # fmt: skip
        self.unreachable: Event[[]] = Event()
        """Called when the log cannot be copied from the known master, which may have other addresses by now."""
        self.received_per_s = self._received_size = 0
        self._measured_s = context.clock.monotonic()
        self.last_read_s = self.last_write_s = 0.0
        """Monotonic times, 0 before the first."""
        self._context = context
        self._config = store.config
        self._client = client
        self._tls = tls
        self.ha_address = store.config.ha_master_address
        self._master_address: str | None = None
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._dispatching: asyncio.TimerHandle | None = None
        self._timer: Timer | None = None
        self._failures = RefusalLog(log)
        # With SYNC_FLUSH a slave acknowledges only data that is synced.
        self._acknowledges_synced = store.config.flush_disk_type == "SYNC_FLUSH"
        self._synced_offset = 0
        self._is_synced = asyncio.Event()

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to copy the log."""
        self._task = asyncio.ensure_future(self._run())
        self._timer = self._context.timers.every(LOOK_S, self._look)

    async def stop(self) -> None:
        """End the connection, and remove a record of which only a part was received."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._connection is not None:
            self._connection.close()
        if self._dispatching is not None:
            self._dispatching.cancel()
        self.follower.cut_incomplete()

    def set_master(self, ha_address: str | None, master_address: str) -> None:
        """Follow the master with these addresses: of its port for slaves, and of its port for clients."""
        ha_address = self._config.ha_master_address or ha_address
        is_other = ha_address != self.ha_address
        self.ha_address, self._master_address = ha_address, master_address
        if is_other and self._connection is not None:
            self._connection.close()
        self._wake.set()

    @property
    def is_connected(self) -> bool:
        """Whether the log is being copied."""
        return self._connection is not None

    # --- connecting -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            pause_s = RETRY_S * random.uniform(0.5, 1.0)
            if self.ha_address is not None:
                try:
                    await self._follow(self.ha_address)
                except LogDivergedError as error:
                    self._failures.refused("diverged", str(error))
                    pause_s = PARTED_RETRY_S
                except (OSError, TimeoutError, RemotingError, ValueError, FollowError) as error:
                    why = f"master {self.ha_address}: the log cannot be copied ({reason(error)}); trying again"
                    self._failures.refused("connect", why)
                    self.unreachable()
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), pause_s)
            except TimeoutError:
                continue

    async def _follow(self, ha_address: str) -> None:
        """Copy the log until it ends. Raises OSError, TimeoutError, RemotingError, LogDivergedError, FollowError."""
        self.follower.dispatch()  # refuses if the end of the log is damaged
        self._context.turn.arm()
        await self._prepare()
        await self._until_synced()
        host, _, port = ha_address.rpartition(":")
        loop = asyncio.get_running_loop()
        how: Any = {} if self._tls is None else {"ssl": self._tls.context, "server_hostname": ""}
        connecting = loop.create_connection(lambda: _Connection(self), host, int(port), **how)
        _, connection = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        self._connection = connection
        log.info("copying the log of master %s from %d on", ha_address, self.follower.max_offset)
        for cause in ("connect", "diverged"):
            self._failures.over(cause)
        try:
            error = await connection.ended
        finally:
            connection.close()
            self._connection = None
        if isinstance(error, (FollowError, OSError)):
            raise error
        log.warning("master %s has closed the connection; this log ends at %d", ha_address, self.follower.max_offset)

    async def _prepare(self) -> None:
        """Compare the end of this log with the master's, or begin an empty one with the master's first record."""
        if self._master_address is None:
            return
        store, master = self._context.store, (self._client, self._master_address)
        files, last = store.commit_log.mapped_files, store.last_record_offset
        record_of_master = partial(master_record, *master)
        if files.files and last >= 0:
            if await is_same(files, last, record_of_master):
                end_of_master = partial(master_log_offset, *master, "commitLogMaxOffset")
                offset = await tail_differs_at(files, last, record_of_master, end_of_master)
            else:
                offset = await diverged_at(
                    files, lambda start: asyncio.to_thread(offsets_in_file, files, start), record_of_master
                )
            if offset is not None:
                is_master_older = await is_lost_by_other(files, offset, record_of_master, (self._master_address,))
                raise LogDivergedError(offset, store.max_physical_offset, is_master_older)
        elif not files.files and self._config.ha_fetch_whole_log:
            # The port for slaves can send a log only from the end of a record on.
            begin = await master_log_offset(*master, "commitLogMinOffset")
            record = await record_of_master(begin)
            if record is not None:  # the log is not empty
                self.follower.begin(begin, record)
                self._context.turn.arm()

    async def _until_synced(self) -> None:
        """With SYNC_FLUSH, wait until the whole log is durable: the first report of a connection also acknowledges it."""
        end = self.follower.max_offset
        async with asyncio.timeout(SYNC_TIMEOUT_S):
            while self._acknowledges_synced and self._synced_offset < end:
                self._is_synced.clear()
                self._context.store.request_sync(end)
                await self._is_synced.wait()

    # --- the connection ---------------------------------------------------------------------------------------------

    def received(self, connection: "_Connection", data: bytes) -> None:
        """Append the data that the master sent, and acknowledge its intact records."""
        self.last_read_s = self._context.clock.monotonic()
        self._received_size += len(data)
        try:
            frames = self.follower.receive(data)
        except (FollowError, OSError) as error:
            connection.end(error)
            return
        finally:
            self._context.turn.arm()  # dispatches the records that are complete
        if self.follower.has_undispatched and self._dispatching is None:
            self._dispatching = self._context.loop.call_later(DISPATCH_S, self._dispatch, connection)
        if self._acknowledges_synced:
            self._context.store.request_sync(self.follower.max_offset)
        elif frames:
            self._report(self._durable_offset)

    def _dispatch(self, connection: "_Connection") -> None:
        self._dispatching = None
        try:
            self.follower.dispatch()
        except (FollowError, OSError) as error:
            connection.end(error)
        else:
            self._report(self._durable_offset)
        self._context.turn.arm()

    @property
    def _durable_offset(self) -> int:
        """The offset to acknowledge: of intact records, with SYNC_FLUSH of synced ones."""
        checked = self.follower.checked_offset
        return min(checked, self._synced_offset) if self._acknowledges_synced else checked

    def synced(self, offset: int) -> None:
        """Note that the log is durable up to `offset`; with SYNC_FLUSH acknowledge it."""
        if self._acknowledges_synced and offset > self._synced_offset:
            self._synced_offset = offset
            self._is_synced.set()
            self._report(self._durable_offset)

    def connected(self, connection: "_Connection") -> None:
        """Request everything behind the end of this log."""
        self.follower.reconnected()
        now_s = self._context.clock.monotonic()
        self.last_read_s = self.last_write_s = now_s
        self._connection = connection
        self._report(self.follower.max_offset)  # everything before it is checked

    def _report(self, offset: int) -> None:
        if self._connection is not None:
            self._connection.write(REPLICA_REPORT_STRUCT.pack(offset))
            self.last_write_s = self._context.clock.monotonic()

    def _look(self) -> None:
        connection, now_s = self._connection, self._context.clock.monotonic()
        self.received_per_s = round(self._received_size / max(now_s - self._measured_s, 1e-3))
        self._received_size, self._measured_s = 0, now_s
        if connection is None:
            return
        if now_s - self.last_read_s > self._config.ha_housekeeping_interval / 1000:
            silent_s = now_s - self.last_read_s
            connection.end(FollowError(f"the master was silent for {silent_s:.0f} s (haHousekeepingInterval)"))
        elif now_s - self.last_write_s >= self._config.ha_send_heartbeat_interval / 1000:
            self._report(self._durable_offset)


class _Connection(asyncio.Protocol):
    """One connection to the master's port for slaves."""

    def __init__(self, client: HAClient) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class
        self._client.connected(self)

    def data_received(self, data: bytes) -> None:
        if not self.ended.done():
            self._client.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.end(error)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def end(self, error: Exception | None) -> None:
        """Close the connection because of `error`; None: the master has closed it."""
        if not self.ended.done():
            self.ended.set_result(error)
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
