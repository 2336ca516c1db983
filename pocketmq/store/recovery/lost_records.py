"""LostRecords: lets a queue continue after records that were lost.

This requires reading the log from its beginning. A queue has a gap if its next record has a higher queue offset than
expected. Usually the records between were damaged and replaced by fillers, and the queue gets a *hole*: units with a tags
code that no filter accepts. But no checksum covers the queue offset itself. A number that is impossible, or that the
following record does not continue, is therefore treated as damaged, and the record gets the next queue offset, as Apache
does for every record.
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
    """Select the records whose queue offset is possible: each earlier record of the queue must have fit into the log."""
    numbers = window.fixed("queue_offset")
    return window.rows((numbers >= 0) & (numbers <= window.physical_offsets // quarantine.FILLER_SIZE_MIN))


class LostRecords:
    """State of one pass over the log from its beginning."""

    def __init__(self, queues: ConsumeQueueStore, delay_levels: DelayLevels) -> None:
        self._queues = queues
        self._delay_levels = delay_levels
        # (physical offset, size)
        self._fillers: list[tuple[int, int]] = []

    def note_fillers(self, window: RecordWindow) -> None:
        """Record the positions of fillers. Must be called with every window in log order."""
        names, ids = window.topics()
        for number, name in enumerate(names):
            if quarantine.TOPIC.startswith(name):
                rows = window.rows(ids == number)
                rows = rows.rows(rows.fixed("sys_flag") & TRANSACTION_TYPE_MASK == TRANSACTION_ROLLBACK_TYPE)
                self._fillers += zip(rows.physical_offsets.tolist(), rows.sizes.tolist(), strict=True)

    def step_over(self, bulk: BulkDispatcher, window: RecordWindow) -> list[str]:
        """Continue the queues that `bulk` found behind when it dispatched `window`. Return texts about what was done."""
        done: list[str] = []
        while bulk.behind:
            gaps = {key: bulk.beyond[key] for key in bulk.behind}
            bulk.behind.clear()
            bulk.beyond.clear()
            for key, until in list(gaps.items()):
                queue = self._queues.find_or_create(*key)
                if queue.max_offset > until:
                    del gaps[key]  # the queue begins there; earlier records are deleted
                else:
                    done.append(self._go_on(queue, until, window))
            if gaps:
                bulk.dispatch(numbered(window), only=gaps.keys(), with_index=False)
        return done

    def _go_on(self, queue: ConsumeQueue, until: int, window: RecordWindow) -> str:
        """Continue a queue at queue offset `until` in `window`, with a hole or with a record that has a wrong number."""
        own = _rows_of(queue, window)
        # If the queue has no records of its own here, it got the record by multi-dispatch from another topic.
        end = int((own if len(own) else window).physical_offsets[0])
        fillers = [filler for filler in self._fillers if queue.max_physical_offset <= filler[0] < end]
        numbers: Sequence[int] = own.fixed("queue_offset").tolist() if len(own) else (until,)
        self._queues.dirty[queue] = None
        missing = numbers[0] - queue.max_offset
        room = sum(size for _, size in fillers) // quarantine.FILLER_SIZE_MIN
        if missing > 0 and (missing <= room or numbers[1:2] == [numbers[0] + 1] or not len(own)):
            newest = queue.unit_at(queue.max_offset - 1)
            # Physical offsets of units must ascend. Pulls do not use those of holes.
            hole = fillers[0] if fillers else newest[:2] if newest is not None else (queue.max_physical_offset, 1)
            queue.fill_hole(numbers[0], *hole)
            return f"{missing} records of {queue.topic}/{queue.queue_id} before queue offset {numbers[0]} are lost"
        view, start = memoryview(own.data), int(own.starts[0])  # type: ignore[arg-type]  # as in store.disk
        request = decode_dispatch_request(view, start, self._delay_levels.tags_code)
        queue.append(queue.max_offset, (end, request.size, request.tags_code))
        return (
            f"the record at {end} has queue offset {numbers[0]} of {queue.topic}/{queue.queue_id} instead of the expected "
            f"{queue.max_offset - 1}, which is used"
        )


def _rows_of(queue: ConsumeQueue, window: RecordWindow) -> RecordWindow:
    """Return the rows of a queue's records after those that it already has."""
    name = queue.topic.encode()
    names, ids = window.topics()
    mask = (window.fixed("queue_id") == queue.queue_id) & (ids == (names.index(name) if name in names else -1))
    mask &= window.fixed("sys_flag") & TRANSACTION_UNQUEUED_FLAG == 0
    return window.rows(mask & (window.physical_offsets >= queue.max_physical_offset))
