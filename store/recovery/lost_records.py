"""What becomes of a queue when records of it are lost: it goes on behind them.

Only a reading of the log from its beginning can tell. A queue whose next record says a higher number than comes has a gap.
Mostly the records between were damaged and fillers stand in their place, and the queue gets a *hole*: units with a tags code
that no filter passes. But no checksum covers the number itself. So one that cannot be, or that the record behind does not
count on from, is taken for damaged, and the record for the one that comes next: as Apache takes every record.
"""

from collections.abc import Sequence

from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK, TRANSACTION_UNQUEUED_FLAG
from pocketmq.store.format.record import decode_dispatch_request
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.log import quarantine
from pocketmq.store.queue.bulk_dispatch import BulkDispatcher
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore


def numbered(window: RecordWindow) -> RecordWindow:
    """The records that can have the queue offset they say: each of the queue before them took its bytes of the log."""
    numbers = window.fixed("queue_offset")
    return window.rows((numbers >= 0) & (numbers <= window.physical_offsets // quarantine.FILLER_SIZE_MIN))


class LostRecords:
    """For one reading of the log from its beginning."""

    def __init__(self, queues: ConsumeQueueStore, delay_levels: DelayLevels) -> None:
        self._queues = queues
        self._delay_levels = delay_levels
        # (physical offset, size)
        self._fillers: list[tuple[int, int]] = []

    def note_fillers(self, window: RecordWindow) -> None:
        """Remember where fillers are; to be called with every window, in the log's order."""
        names, ids = window.topics()
        for number, name in enumerate(names):
            if quarantine.TOPIC.startswith(name):
                rows = window.rows(ids == number)
                rows = rows.rows(rows.fixed("sys_flag") & TRANSACTION_TYPE_MASK == TRANSACTION_ROLLBACK_TYPE)
                self._fillers += zip(rows.physical_offsets.tolist(), rows.sizes.tolist(), strict=True)

    def step_over(self, bulk: BulkDispatcher, window: RecordWindow) -> list[str]:
        """Let the queues go on that `bulk`, which has dispatched `window`, found behind; what was done, in words."""
        done: list[str] = []
        while bulk.behind:
            gaps = {key: bulk.beyond[key] for key in bulk.behind}
            bulk.behind.clear()
            bulk.beyond.clear()
            for key, until in list(gaps.items()):
                queue = self._queues.find_or_create(*key)
                if queue.max_offset > until:
                    del gaps[key]  # it begins there: what was before is deleted
                else:
                    done.append(self._go_on(queue, until, window))
            if gaps:
                bulk.dispatch(numbered(window), only=gaps.keys(), with_index=False)
        return done

    def _go_on(self, queue: ConsumeQueue, until: int, window: RecordWindow) -> str:
        """Let a queue go on at queue offset `until` in `window`: with a hole, or with a record of a wrong number."""
        own = _rows_of(queue, window)
        # Without any the queue got its record by multi-dispatch, from another topic.
        end = int((own if len(own) else window).physical_offsets[0])
        fillers = [filler for filler in self._fillers if queue.max_physical_offset <= filler[0] < end]
        numbers: Sequence[int] = own.fixed("queue_offset").tolist() if len(own) else (until,)
        self._queues.dirty[queue] = None
        missing = numbers[0] - queue.max_offset
        room = sum(size for _, size in fillers) // quarantine.FILLER_SIZE_MIN
        if missing > 0 and (missing <= room or numbers[1:2] == [numbers[0] + 1] or not len(own)):
            newest = queue.unit_at(queue.max_offset - 1)
            # Units ascend in physical offset. Pulls never look at where a hole points.
            hole = fillers[0] if fillers else newest[:2] if newest is not None else (queue.max_physical_offset, 1)
            queue.fill_hole(numbers[0], *hole)
            return f"{missing} records of {queue.topic}/{queue.queue_id} before queue offset {numbers[0]} are lost"
        view, start = memoryview(own.data), int(own.starts[0])  # type: ignore[arg-type]  # as in store.disk
        request = decode_dispatch_request(view, start, self._delay_levels.tags_code)
        queue.append(queue.max_offset, (end, request.size, request.tags_code))
        return (
            f"the record at {end} says queue offset {numbers[0]} of {queue.topic}/{queue.queue_id}, where "
            f"{queue.max_offset - 1} comes: it is read as that"
        )


def _rows_of(queue: ConsumeQueue, window: RecordWindow) -> RecordWindow:
    """The records of a queue that lie behind those it has."""
    name = queue.topic.encode()
    names, ids = window.topics()
    mask = (window.fixed("queue_id") == queue.queue_id) & (ids == (names.index(name) if name in names else -1))
    mask &= window.fixed("sys_flag") & TRANSACTION_UNQUEUED_FLAG == 0
    return window.rows(mask & (window.physical_offsets >= queue.max_physical_offset))
