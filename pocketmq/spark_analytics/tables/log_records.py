"""Log records at positions given by other files."""

import logging
from collections.abc import Iterator

import numpy as np

from pocketmq.spark_analytics.decoding.columns import Records
from pocketmq.spark_analytics.reading.reader import DamagedBytes, pieces
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.store.format.record_chain import Positions
from pocketmq.store.offline.places import LogFile
from pocketmq.store.offline.store_folder import StoreFolder

log = logging.getLogger(__name__)


def records_at(store: StoreFolder, physical_offsets: Positions, sizes: Positions) -> Iterator[Records]:
    """Yield the records at some physical offsets, in windows and in log order.

    Missing records are skipped: before a broker's recovery, queues may point beyond the end of the log.
    """
    offsets, chosen = np.unique(physical_offsets, return_index=True)
    sizes = np.asarray(sizes, np.int64)[chosen]
    found = 0
    for row_file in store.row("commitlog").files:
        file = LogFile(row_file.path, row_file.start_offset, row_file.size)
        own = (offsets >= file.start_offset) & (offsets + sizes <= file.end_offset)
        if not own.any():
            continue
        starts = offsets[own] - file.start_offset
        end = int(starts[-1] + sizes[own][-1])
        split = Split(file, int(starts[0]), end, end, starts, sizes[own])
        for piece in pieces(split):
            if isinstance(piece, DamagedBytes):
                continue
            records = Records.of(piece, file.path)
            records = records.rows(records.lengths_add_up & np.isin(records.physical_offsets, offsets))
            found += len(records)
            if len(records):
                yield records
    if found < len(offsets):
        log.warning(
            "%d of %d records that files of %s refer to are not in the log", len(offsets) - found, len(offsets), store.root
        )
