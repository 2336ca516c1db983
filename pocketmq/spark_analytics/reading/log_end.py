"""The rule that decides where a log ends.

All readers, this one and the one in Java, follow this rule. The log's last file is the last one that begins with a record.

1. The chain of records is followed in that file from a record that is known to belong to the log: the file's first, or one
   that a ConsumeQueue proves (3).
2. Where the BLANK follows, the file is full and the log ends there.
3. Where something else follows, at position p, the log nevertheless goes on behind p if
   a. a ConsumeQueue's last unit points behind p, and a record begins there that has the unit's size; or
   b. a valid record lies behind p, valid as in a broker's recovery (lengths, CRC, own offset), and its store time is later
      than that of the last valid record before p, and than those of the records that (b) found between them.
   Then the bytes from p to the next record are damage, handled by mode, and the chain is followed again from the last record
   that was found.
4. Otherwise the log ends at p, or before its last record if nothing follows that record and a recovery would not keep it.
   A record whose properties end in a zero byte, with only zeros behind it, is kept if a ConsumeQueue lists it; otherwise it
   cannot be told from one whose write was not finished.

Neither the file `abort` nor the checkpoint is part of the rule. Old records that a truncation left behind the end are not
found by (3): a start truncates queues together with the log, and the old records were stored before the newest one in front
of them. (If Apache's broker has truncated a damaged log and nothing has been stored since, they cannot be told from damage
by (b), and are read or refused as records behind it.)
Remote files are searched for (b) only as far as AHEAD_REMOTE, and the queues of remote stores are not read for (a).
"""

import logging
from typing import Final

import numpy as np

from pocketmq.store.format.layout import BLANK_SIZE
from pocketmq.store.format.record import SECTOR_SIZE, BadRecordError, check_record
from pocketmq.store.format.record_chain import Positions
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.offline.file_bytes import is_remote
from pocketmq.store.offline.log_walk import WINDOW_SIZE_FIRST, Ending, FileWalk, next_candidate, walks
from pocketmq.store.offline.places import LogFile

log = logging.getLogger(__name__)

AHEAD_REMOTE: Final = 64 << 20
# Number of records at the end of a window that are checked as a possible proof.
_TRIED_MAX: Final = 4
_NEVER: Final = -1


def cuts_to_end(file: LogFile, begin: int, split_size: int, is_proven: bool) -> list[int]:
    """Follow the last file of a log from the record at `begin` to the log's end, and return the positions of cuts.

    The last cut is the end; the others are record starts about `split_size` apart. `is_proven`: a ConsumeQueue lists the
    record at `begin`.
    """
    cuts = [begin]
    while True:
        walk = FileWalk(file, cuts[-1], file.size, first_size=WINDOW_SIZE_FIRST)
        last, window = cuts[-1], None
        for window in walk:
            starts = window.starts + (window.physical_offset - file.start_offset)
            last = int(starts[-1])
            while cuts[-1] + split_size <= last:
                cuts.append(int(starts[np.searchsorted(starts, cuts[-1] + split_size)]))
        end = walk.position
        if walk.ending is Ending.BLANK:
            break
        is_last_valid = last < end and is_valid(file, last, end - last, is_proven and last == begin)
        newest_ms = _NEVER if window is None else _newest_ms(window, is_last_valid)
        proof = proof_behind(file, end, newest_ms, file.size)
        if proof is None:
            end = end if is_last_valid else last
            break
        # A record that was being written when the walk passed, and was followed by others meanwhile, is not damage.
        if begins_chain(file, end):
            continue
        log.info("bytes at %d of %s are damaged: a valid record follows at %d", end, file.path, proof)
        cuts += [*range(cuts[-1] + split_size, proof, split_size), proof]
    return [cut for cut in cuts if cut < end] + [end]


def _newest_ms(window: RecordWindow, is_last_valid: bool) -> int:
    """Return the store time of the last valid record of `window`, or _NEVER. Only its last record may be invalid."""
    times = window.fixed("store_timestamp_ms")[: len(window) if is_last_valid else len(window) - 1]
    return int(times[-1]) if len(times) else _NEVER


def begins_chain(file: LogFile, position: int) -> bool:
    """Return whether a record begins at a position, with a size that is possible."""
    return next(iter(FileWalk(file, position, position + 1, first_size=WINDOW_SIZE_FIRST)), None) is not None


def is_valid(file: LogFile, position: int, size: int, is_complete: bool = False) -> bool:
    """Return whether a broker's recovery would keep the record at a position.

    If it `is_complete`, zeros at its end do not count as the rest of an unfinished write.
    """
    # Lost sectors are recognised by their alignment.
    aligned = position - position % SECTOR_SIZE
    # With the first bytes behind it: a record that ends in zeros is torn if nothing is written there.
    data = file.read(aligned, position + size + BLANK_SIZE - aligned)
    try:
        own = file.start_offset + position
        check_record(memoryview(data.tobytes()), position - aligned, own, complete_to=own + size if is_complete else 0)
    except BadRecordError as error:
        log.info("the record of %s at %d is torn: %s", file.path, position, error)
        return False
    return True


def proof_behind(file: LogFile, position: int, newest_ms: int, limit: int) -> int | None:
    """Return the position of the last record that proves by (3b) that a log goes on behind `position`, or None.

    `newest_ms` is the latest store time of the records before `position`; bytes from `limit` on are not searched.
    """
    if is_remote(file.path):
        limit = min(limit, position + AHEAD_REMOTE)
    proof = None
    for walk in walks(file, next_candidate(file, position + 1, limit), limit):
        for window in walk:
            proven = _last_later(file, window, newest_ms)
            if proven is not None:
                proof, newest_ms = proven
    return proof


def _last_later(file: LogFile, window: RecordWindow, newest_ms: int) -> tuple[int, int] | None:
    """Return (position, store time) of the last valid record of a window stored later than `newest_ms`, or None."""
    times = window.fixed("store_timestamp_ms")
    later: Positions = np.flatnonzero(window.lengths_add_up & (times > newest_ms))
    base = window.physical_offset - file.start_offset
    for row in later[::-1][:_TRIED_MAX].tolist():
        position = base + int(window.starts[row])
        if is_valid(file, position, int(window.sizes[row])):
            return position, int(times[row])
    return None
