"""OrdinaryCopies: lets the compiled lane deliver timer messages of which many are due at once.

A copy is *ordinary* if its topic and its queue exist and no property needs a decision. All others take the Python path,
which would put ordinary ones with the same result.
"""

from collections.abc import Sequence
from itertools import takewhile

from pocketmq.broker.lane.sends import OrdinarySends
from pocketmq.broker.services import Services


class OrdinaryCopies:
    """Puts the copies of due timer messages with the lane of `sends`."""

    def __init__(self, services: Services, sends: OrdinarySends) -> None:
        self._sends = sends
        self._log = services.store.commit_log
        self._precision_ms = services.store.config.timer_precision_ms

    def put(self, physical_offsets: Sequence[int], now_ms: int) -> int:
        """Put copies of the first of these records, up to one not ordinary or in another file; return their number."""
        commit_log, sends, copied = self._log, self._sends, 0
        tail = commit_log.tail
        file = commit_log.mapped_files.file_at(physical_offsets[0])
        if file is None:
            return 0
        start_offset, end_offset = file.start_offset, file.end_offset
        in_file = takewhile(lambda offset: start_offset <= offset < end_offset, physical_offsets)
        positions = [offset - start_offset for offset in in_file]
        store_time_ms = sends.store_time_ms
        while copied < len(positions) and (lane := sends.lane) is not None:
            offset = tail.end_offset
            count, end_offset, unknown = lane.copy(
                file.view[: file.wrote], positions[copied:], (now_ms, self._precision_ms), offset,
                commit_log.plain_end - offset, store_time_ms, tail.unwritten,
            )  # fmt: skip
            if count:
                copied += int(count)
                sends.appended(end_offset, store_time_ms)
            if unknown is None or not sends.learn(unknown):
                break
        return copied
