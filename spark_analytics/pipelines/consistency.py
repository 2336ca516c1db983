"""Consistency of a store: bodies against their CRC, records against each other, ConsumeQueues against the log.

Every record has one unit in its queue, and every unit one record. Instead of joining both sides, each is summarised per
queue: the count, and the XOR of a hash of queue offset, physical offset and size. A queue is consistent if these agree;
only queues that differ are joined, in a second pass, to locate the differences. Records of prepared or rolled back
transactions (sysFlag) are never dispatched, and light queues (%LMQ%) hold units for other topics' records; both are left
out.

Queues are read before the log, so a unit without a record is not one that a running broker added in between. Records behind
the newest unit of all queues are notes: they are dispatched soon, or when a broker starts. All other findings are errors,
including a unit behind the end of the log, which a start cuts off: the log has lost the record, or is damaged there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from pocketmq.spark_analytics.pipelines.stores import STORE_OF_FILE, Stores
from pocketmq.store.format.layout import HOLE_TAGS_CODE

FINDINGS_MAX: Final = 1000
ERROR: Final = "error"
NOTE: Final = "note"
_RECORDS: Final = f"SELECT *, {STORE_OF_FILE} AS store, sysFlag & 12 IN (0, 8) AS is_dispatched FROM {{log}}"
_UNITS: Final = f"SELECT * FROM {{queues}} WHERE NOT startswith(topic, '%LMQ%') AND tagsCode <> {HOLE_TAGS_CODE}"
_HASH: Final = "xxhash64(queueOffset, physicalOffset, {size})"
_LOG_QUEUES: Final = f"""
SELECT store, topic, queueId,
       count_if(is_dispatched) AS records, min(queueOffset) FILTER (WHERE is_dispatched) AS first_record,
       max(queueOffset) FILTER (WHERE is_dispatched) AS last_record,
       bit_xor({_HASH.format(size="storeSize")}) FILTER (WHERE is_dispatched) AS record_hash,
       count_if(crcOk = false) AS wrong_crc, count_if(topic IS NULL) AS damaged,
       min(physicalOffset) AS log_begin, max(physicalOffset + storeSize) AS log_end
FROM {{records}} GROUP BY store, topic, queueId
"""
_OWN_QUEUES: Final = f"""
SELECT store, topic, queueId, count(*) AS units, min(queueOffset) AS first_unit, max(queueOffset) AS last_unit,
       bit_xor({_HASH.format(size="size")}) AS unit_hash, max(physicalOffset) AS last_dispatched
FROM {{units}} GROUP BY store, topic, queueId
"""
_QUEUES: Final = """
SELECT coalesce(log.store, own.store) AS store, coalesce(log.topic, own.topic) AS topic,
       coalesce(log.queueId, own.queueId) AS queueId,
       coalesce(records, 0) AS records, coalesce(units, 0) AS units, first_record, last_record, first_unit, last_unit,
       coalesce(last_record - first_record + 1 - records, 0) AS missing_offsets,
       coalesce(wrong_crc, 0) AS wrong_crc, coalesce(damaged, 0) AS damaged,
       coalesce(records, 0) = coalesce(units, 0) AND coalesce(record_hash, 0) = coalesce(unit_hash, 0) AS agrees,
       log_begin, log_end, last_dispatched
FROM {log_queues} AS log FULL JOIN {own_queues} AS own
  ON log.store = own.store AND log.topic = own.topic AND log.queueId = own.queueId
ORDER BY store, topic, queueId
"""
_ENDS: Final = """
SELECT store, min(log_begin) AS log_begin, max(log_end) AS log_end, max(last_dispatched) AS last_dispatched
FROM {queues} GROUP BY store
"""
_DAMAGED: Final = f"""
SELECT store, '{ERROR}' AS severity, if(topic IS NULL, 'damaged bytes', 'wrong CRC') AS kind, topic, queueId, queueOffset,
       physicalOffset,
       if(topic IS NULL, 'these bytes are not a valid record', 'the body differs from its CRC') AS detail
FROM {{records}} WHERE topic IS NULL OR crcOk = false
"""
_IS_NEW: Final = "unit_at IS NULL AND physicalOffset > coalesce(last_dispatched, -1)"
_IS_BEYOND: Final = "record_at IS NULL AND physicalOffset >= coalesce(log_end, 0)"
_DIFFERENCES: Final = f"""
SELECT store, if({_IS_NEW}, '{NOTE}', '{ERROR}') AS severity,
       CASE WHEN unit_at IS NULL THEN 'record without unit' WHEN record_at IS NULL THEN 'unit without record'
            ELSE 'unit differs' END AS kind,
       topic, queueId, coalesce(record_offset, unit_offset) AS queueOffset, physicalOffset,
       CASE WHEN {_IS_NEW} THEN 'not dispatched yet'
            WHEN unit_at IS NULL THEN 'no consumer receives this record'
            WHEN {_IS_BEYOND} THEN 'behind the end of the log, which was truncated or damaged: a start cuts both off'
            WHEN record_at IS NULL THEN 'no record begins where the unit says'
            ELSE concat('the unit says queue offset ', unit_offset, ' and ', unit_size, ' bytes, the record ', record_offset,
                        ' and ', record_size) END AS detail
FROM (SELECT store, topic, queueId, physicalOffset, physicalOffset AS record_at, queueOffset AS record_offset,
             storeSize AS record_size
      FROM {{records}} LEFT SEMI JOIN {{wrong}} USING (store, topic, queueId) WHERE is_dispatched)
FULL JOIN (SELECT store, topic, queueId, physicalOffset, physicalOffset AS unit_at, queueOffset AS unit_offset,
                  size AS unit_size
           FROM {{units}} LEFT SEMI JOIN {{wrong}} USING (store, topic, queueId)
           JOIN {{ends}} USING (store) WHERE physicalOffset <= last_dispatched)
USING (store, topic, queueId, physicalOffset)
JOIN {{ends}} USING (store)
WHERE unit_at IS NULL OR record_at IS NULL OR record_offset <> unit_offset OR record_size <> unit_size
"""
_GAPS: Final = f"""
SELECT store, '{ERROR}' AS severity, 'gap' AS kind, topic, queueId, first_record AS queueOffset,
       CAST(NULL AS BIGINT) AS physicalOffset,
       if(missing_offsets > 0,
          concat(missing_offsets, ' queue offsets between ', first_record, ' and ', last_record, ' have no record'),
          concat(-missing_offsets, ' records have the same queue offset as another')) AS detail
FROM {{queues}} WHERE missing_offsets <> 0
"""
_INDEX: Final = f"""
SELECT own.store, '{ERROR}' AS severity, 'index entry without record' AS kind, CAST(NULL AS STRING) AS topic,
       CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS queueOffset, own.physicalOffset,
       concat('entry ', entry, ' of index file ', file) AS detail
FROM {{index}} AS own JOIN {{ends}} AS ends ON own.store = ends.store
LEFT ANTI JOIN {{records}} AS log ON own.store = log.store AND own.physicalOffset = log.physicalOffset
WHERE own.physicalOffset >= log_begin AND own.physicalOffset < log_end
"""
_FINDINGS_ORDER: Final = ("severity", "store", "kind", "topic", "queueId", "physicalOffset")


def _records(stores: Stores) -> Any:
    log = replace(stores, mode="PERMISSIVE").messages(
        "topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "crcOk", "storePath"
    )
    return stores.sql(_RECORDS, log=log)


def _units(stores: Stores) -> Any:
    return stores.sql(_UNITS, queues=stores.table("consumequeue"))


def queues(stores: Stores) -> Any:
    """Return one row per queue: summaries of log and units, and whether they agree. One pass, with the CRC of each body."""
    # Queues are collected here, before the log is read.
    own_queues = stores.spark.createDataFrame(stores.sql(_OWN_QUEUES, units=_units(stores)).toArrow())
    log_queues = stores.sql(_LOG_QUEUES, records=_records(stores))
    return stores.sql(_QUEUES, log_queues=log_queues, own_queues=own_queues)


def counted(findings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return severity -> number of findings, errors first. `or more` marks the last if the list of findings was cut."""
    counts = Counter(finding["severity"] for finding in findings)
    told = {severity: f"{counts[severity]:,}" for severity in (ERROR, NOTE) if counts[severity]}
    if counts.total() == FINDINGS_MAX:
        told[list(told)[-1]] += " or more"
    return told


def findings(stores: Stores, queues: Any, *, with_index: bool = False) -> Any:
    """Return the problems in the collected `queues` (a pyarrow Table): the first FINDINGS_MAX, errors first.

    None, without reading anything, if there are no differences.
    """
    rows = queues.to_pylist()
    parts = []
    if rows:
        told = stores.spark.createDataFrame(queues)
        ends = stores.sql(_ENDS, queues=told)
        if any(row["wrong_crc"] or row["damaged"] for row in rows):
            parts.append(stores.sql(_DAMAGED, records=_records(stores)))
        if not all(row["agrees"] for row in rows if row["topic"] is not None):
            wrong = told.where("NOT agrees AND topic IS NOT NULL").select("store", "topic", "queueId")
            parts.append(stores.sql(_DIFFERENCES, records=_records(stores), units=_units(stores), wrong=wrong, ends=ends))
        if any(row["missing_offsets"] for row in rows):
            parts.append(stores.sql(_GAPS, queues=told))
        if with_index:
            parts.append(stores.sql(_INDEX, index=stores.table("index"), records=_records(stores), ends=ends))
    if not parts:
        return None
    return reduce(lambda one, other: one.unionByName(other), parts).orderBy(*_FINDINGS_ORDER).limit(FINDINGS_MAX)
