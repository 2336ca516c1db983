"""Dispatcher: builds ConsumeQueue units and index entries from the records appended to the log.

The records of one event-loop turn (or of recovery) are dispatched together and grouped by queue: each queue is written once,
each held pull is woken once, and the keys of all records are hashed together.
"""

from collections.abc import Callable, Sequence

from pocketmq.store.format.lane_units import LaneUnits
from pocketmq.store.format.layout import EXT_ADDRESS_MAX
from pocketmq.store.format.message import (
    QUEUE_OFFSET_MAX,
    TRANSACTION_UNQUEUED_FLAG,
    Arrival,
    DispatchRequest,
    Watched,
)
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore


class Dispatcher:
    """Dispatcher to queues and, unless `index` is None (messageIndexEnable=false), to the index."""

    def __init__(
        self, queues: ConsumeQueueStore, index: IndexService | None, units_added: Callable[[int, int], None] | None = None
    ) -> None:
        """`units_added` is called with the number of the compiled lane's units that came into queues, and the bytes of their
        records."""
        self._queues = queues
        self._index = index
        # Arrivals of a dispatch that failed halfway. The next dispatch returns them, as it will skip the units already
        # added.
        self._arrivals: list[Arrival] = []
        self._units_added = units_added

    def dispatch(self, requests: Sequence[DispatchRequest]) -> list[Arrival]:
        """Add `requests`, in log order, to queues and index. Return the queues that grew.

        Prepared and rolled-back transactional records go to no queue, nor do those whose topic, queue id or queue offset no
        queue can have: a slave copies whatever its master's log contains. Records already in a queue or in the index are
        skipped, so a range of the log may be dispatched twice. After an OSError, such as a full disk, it must be dispatched
        again.
        """
        ext = self._queues.ext
        if ext.writes:
            _put_ext(self._queues, requests)
        runs: dict[tuple[str, int], tuple[int, list[int]]] = {}
        newest_ms = 0
        get_run = runs.get
        for request in requests:
            if request.sys_flag & TRANSACTION_UNQUEUED_FLAG or not 0 <= request.queue_offset <= QUEUE_OFFSET_MAX:
                continue
            key = (request.topic, request.queue_id)
            unit = (request.physical_offset, request.size, request.tags_code)
            run = get_run(key)
            if run is None:
                runs[key] = (request.queue_offset, [*unit])
            else:
                run[1].extend(unit)
        arrivals = self._arrivals
        if requests:
            newest_ms = requests[-1].store_timestamp_ms
        queues, dirty = self._queues.queues, self._queues.dirty
        for key, (queue_offset, values) in runs.items():
            queue = queues.get(key)
            if queue is None:
                if not self._queues.can_have(*key):
                    continue
                queue = self._queues.find_or_create(*key)
            appended = queue.append(queue_offset, values)
            if appended:
                dirty[queue] = None
                new = -3 * appended
                size, tags_codes = sum(values[new + 1 :: 3]), values[new + 2 :: 3]
                if ext.writes:
                    units = [ext.get(*key, code) for code in tags_codes]
                    tags_codes = [unit.tags_code if unit else code for unit, code in zip(units, tags_codes, strict=True)]
                arrivals.append(Arrival(key[0], key[1], queue.max_offset, tags_codes, newest_ms, size))
        if self._index is not None:
            self._index.put(requests)
        self._arrivals = []
        return arrivals

    def dispatch_units(self, units: LaneUnits, watched: Watched | None) -> list[Arrival] | None:
        """Add the units of the compiled lane to queues and index, and return the watched queues that grew (None: all).

        None if they must be dispatched as requests, because of an error or a rare case; some may be in queues already.
        """
        index, last, queues = self._index, units.last, self._queues
        file = index.files[-1] if index is not None and index.files else None
        if last is None or queues.ext.writes or (index is not None and file is None and units.has_keys):
            return None
        is_complete, count, size, found = units.append(queues.queues, queues.dirty, watched, file)
        for (topic, queue_id), max_offset, tags_codes, own_size in found:
            self._arrivals.append(Arrival(topic, queue_id, max_offset, tags_codes, last[2], own_size, is_counted=True))
        if count and self._units_added is not None:
            self._units_added(count, size)
        if not is_complete:
            return None
        if index is not None and file is not None:
            index.units_put()
        arrivals, self._arrivals = self._arrivals, []
        return arrivals


def _put_ext(queues: ConsumeQueueStore, requests: Sequence[DispatchRequest]) -> None:
    """Write tags codes, store times and bitmaps to consumequeue_ext and replace the requests' tags codes by addresses."""
    ext = queues.ext
    for request in requests:
        if request.sys_flag & TRANSACTION_UNQUEUED_FLAG or not queues.can_have(request.topic, request.queue_id):
            continue
        # In a second attempt the tags code is already an address.
        if request.tags_code > EXT_ADDRESS_MAX:
            bitmap = ext.bitmap_of(request.topic, request.physical_offset) if ext.bitmap_of else b""
            request.tags_code = ext.put(
                request.topic, request.queue_id, request.tags_code, request.store_timestamp_ms, bitmap
            )
