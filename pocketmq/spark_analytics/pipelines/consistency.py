"""Consistency of a store: bodies against their CRC, records against each other, ConsumeQueues against the log.

Every record has one unit in its queue, and every unit one record. Instead of joining both sides, each is summarised per
queue: the count, and the XOR of a hash of queue offset, physical offset and size. A queue is consistent if these agree;
only queues that differ are joined, in a second pass, to locate the differences. Left out are records of prepared or rolled
back transactions (sysFlag), which are never dispatched; light queues (%LMQ%), which hold units for other topics' records;
topics with batch queues (5.x), whose units are elsewhere; and records that have outlived their queue, because their topic
was deleted: it has no queues, or they begin behind the record, with a queue offset that is not greater.

Queues are read before the log, so a unit without a record is not one that a running broker added in between. Records behind
the newest unit of all queues are notes: they are dispatched soon, or when a broker starts. All other findings are errors,
including a unit behind the end of the log, which a start cuts off: the log has lost the record, or is damaged there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from pocketmq.spark_analytics.pipelines.stores import STORE_OF_FILE, Stores
from pocketmq.store.format.layout import HOLE_TAGS_CODE

FINDINGS_MAX: Final = 1000
NEVER: Final = 2**63 - 1
_OF_QUEUE: Final = pa.schema(
    [("store", pa.string()), ("topic", pa.string()), ("queueId", pa.int32())]
    + [("first_unit", pa.int64()), ("first_unit_at", pa.int64())]
)
_HOME: Final = pa.schema(
    [("store", pa.string()), ("topic", pa.string()), ("begins_at", pa.int64()), ("has_batches", pa.bool_())]
)
_FALLBACK: Final = pa.schema([("store", pa.string()), ("begins_at", pa.int64())])
ERROR: Final = "error"
NOTE: Final = "note"
_HAS_OUTLIVED: Final = """
CASE WHEN own.first_unit IS NOT NULL THEN physicalOffset < own.first_unit_at AND queueOffset >= own.first_unit
     ELSE physicalOffset < coalesce(home.begins_at, fallback.begins_at, 0) END
"""
_RECORDS: Final = f"""
SELECT *, is_queued AND NOT has_outlived AS is_dispatched
FROM (
  SELECT log.*, (sysFlag & 12) IN (0, 8) AND (sysFlag & 128) = 0 AND NOT coalesce(home.has_batches, false) AS is_queued,
         {_HAS_OUTLIVED} AS has_outlived
  FROM (SELECT *, {STORE_OF_FILE} AS store FROM {{log}}) AS log
  LEFT JOIN {{units_of_queues}} AS own
    ON own.store = log.store AND own.topic = log.topic AND own.queueId = log.queueId
  LEFT JOIN {{homes}} AS home ON home.store = log.store AND home.topic = log.topic
  LEFT JOIN {{fallbacks}} AS fallback ON fallback.store = log.store
)
"""
_UNITS: Final = f"SELECT * FROM {{queues}} WHERE NOT startswith(topic, '%LMQ%') AND tagsCode <> {HOLE_TAGS_CODE}"
_HASH: Final = "xxhash64(queueOffset, physicalOffset, CAST({size} AS BIGINT))"
_LOG_QUEUES: Final = f"""
SELECT store, topic, queueId,
       count(CASE WHEN is_dispatched THEN 1 END) AS records, min(queueOffset) FILTER (WHERE is_dispatched) AS first_record,
       max(queueOffset) FILTER (WHERE is_dispatched) AS last_record,
       bit_xor({_HASH.format(size="storeSize")}) FILTER (WHERE is_dispatched) AS record_hash,
       count(CASE WHEN is_queued AND has_outlived THEN 1 END) AS outlived,
       count(CASE WHEN crcOk = false THEN 1 END) AS wrong_crc, count(CASE WHEN topic IS NULL THEN 1 END) AS damaged,
       min(physicalOffset) AS log_begin, max(physicalOffset + storeSize) AS log_end
FROM {{records}} GROUP BY store, topic, queueId
"""
_OWN_QUEUES: Final = f"""
SELECT store, topic, queueId, count(*) AS units, min(queueOffset) AS first_unit, max(queueOffset) AS last_unit,
       min(physicalOffset) AS first_unit_at,
       bit_xor({_HASH.format(size="size")}) AS unit_hash, max(physicalOffset) AS last_dispatched
FROM {{units}} GROUP BY store, topic, queueId
"""
_QUEUES: Final = """
SELECT coalesce(log.store, own.store) AS store, coalesce(log.topic, own.topic) AS topic,
       coalesce(log.queueId, own.queueId) AS queueId,
       coalesce(records, 0) AS records, coalesce(units, 0) AS units, first_record, last_record, first_unit, last_unit,
       first_unit_at, coalesce(outlived, 0) AS outlived,
       coalesce(last_record - first_record + 1 - records, 0) AS missing_offsets,
       coalesce(wrong_crc, 0) AS wrong_crc, coalesce(damaged, 0) AS damaged,
       coalesce(records, 0) = coalesce(units, 0) AND coalesce(record_hash, 0) = coalesce(unit_hash, 0) AS agrees,
       log_begin, log_end, last_dispatched
FROM {log_queues} AS log FULL JOIN {own_queues} AS own
  ON log.store = own.store AND log.topic = own.topic AND log.queueId = own.queueId
ORDER BY store, topic, queueId
"""
_WRONG: Final = "SELECT store, topic, queueId FROM {queues} WHERE NOT agrees AND topic IS NOT NULL"
_ENDS: Final = """
SELECT store, min(log_begin) AS log_begin, max(log_end) AS log_end, max(last_dispatched) AS last_dispatched
FROM {queues} GROUP BY store
"""
# A finding is a run of neighbours with the same problem, worst kinds first; `count` is their number.
KINDS: Final = (
    *("damaged bytes", "unit without record", "wrong CRC", "gap", "unit differs", "record without unit"),
    "index entry without record",
)
_ORDER: Final = " ".join(f"WHEN '{kind}' THEN {rank}" for rank, kind in enumerate(KINDS))
_FINDINGS: Final = f"""
SELECT severity, store, kind, topic, queueId, queueOffset, physicalOffset, CAST(count AS BIGINT) AS count, detail
FROM ({{parts}})
ORDER BY severity, CASE kind {_ORDER} END, store, physicalOffset, topic, queueId LIMIT {FINDINGS_MAX}
"""
_NAMES: Final = "store, severity, kind, topic, queueId, queueOffset, physicalOffset, count, detail"
_DAMAGED: Final = f"""
SELECT store, '{ERROR}' AS severity, 'damaged bytes' AS kind, topic, queueId, queueOffset, physicalOffset, 1 AS count,
       'these bytes are not a valid record' AS detail
FROM {{records}} WHERE topic IS NULL
UNION ALL
SELECT store, '{ERROR}', 'wrong CRC', topic, queueId, min(queueOffset), min(physicalOffset), count(*),
       'the body differs from its CRC'
FROM (
  SELECT *, queueOffset - row_number() OVER (PARTITION BY store, topic, queueId ORDER BY queueOffset) AS run
  FROM {{records}} WHERE crcOk = false AND topic IS NOT NULL
)
GROUP BY store, topic, queueId, run
"""
_IS_WRONG: Final = (
    "EXISTS (SELECT 1 FROM {wrong} AS w WHERE w.store = own.store AND w.topic = own.topic AND w.queueId = own.queueId)"
)
_IS_NEW: Final = "unit_at IS NULL AND physicalOffset > coalesce(last_dispatched, -1)"
_IS_BEYOND: Final = "record_at IS NULL AND physicalOffset >= coalesce(log_end, 0)"
# Everything about the queues that differ, in the order of the log; `detail` is null where both sides agree.
_COMPARED: Final = f"""
SELECT store, topic, queueId, physicalOffset, coalesce(record_offset, unit_offset) AS queueOffset,
       CASE WHEN unit_at IS NULL THEN 'record without unit' WHEN record_at IS NULL THEN 'unit without record'
            ELSE 'unit differs' END AS kind,
       CASE WHEN {_IS_NEW} THEN 'not dispatched yet'
            WHEN unit_at IS NULL THEN 'no consumer receives this record'
            WHEN {_IS_BEYOND} THEN 'beyond the end of the log, which was truncated or damaged: a starting broker cuts it off'
            WHEN record_at IS NULL THEN 'no record begins at the physical offset of the unit'
            WHEN record_offset <> unit_offset OR record_size <> unit_size
            THEN concat('the unit has queue offset ', unit_offset, ' and ', unit_size, ' bytes, the record ', record_offset,
                        ' and ', record_size) END AS detail,
       CASE WHEN {_IS_NEW} THEN 1 WHEN unit_at IS NULL THEN 2 WHEN {_IS_BEYOND} THEN 3 WHEN record_at IS NULL THEN 4
            WHEN record_offset <> unit_offset OR record_size <> unit_size THEN 5 ELSE 0 END AS problem
FROM (SELECT store, topic, queueId, physicalOffset, physicalOffset AS record_at, queueOffset AS record_offset,
             storeSize AS record_size
      FROM {{records}} AS own WHERE {_IS_WRONG} AND is_dispatched) AS the_records
FULL JOIN (SELECT own.store, topic, queueId, physicalOffset, physicalOffset AS unit_at, queueOffset AS unit_offset,
                  size AS unit_size
           FROM {{units}} AS own JOIN {{ends}} AS e ON own.store = e.store
           WHERE {_IS_WRONG} AND physicalOffset <= last_dispatched) AS the_units
USING (store, topic, queueId, physicalOffset)
JOIN {{ends}} AS the_ends USING (store)
"""
_DIFFERENCES: Final = f"""
SELECT store, CASE WHEN problem = 1 THEN '{NOTE}' ELSE '{ERROR}' END AS severity, kind,
       CASE WHEN min(topic) = max(topic) THEN min(topic) END AS topic,
       CASE WHEN min(topic) = max(topic) AND min(queueId) = max(queueId) THEN min(queueId) END AS queueId,
       CASE WHEN min(topic) = max(topic) AND min(queueId) = max(queueId) THEN min(queueOffset) END AS queueOffset,
       min(physicalOffset) AS physicalOffset, count(*) AS count,
       CASE WHEN count(*) = 1 THEN min(detail)
            ELSE concat(min_by(detail, physicalOffset), '; ', count(*), ' in ', count(DISTINCT concat(topic, ' ', queueId)),
                        ' queues, the last at ', max(physicalOffset)) END AS detail
FROM (
  SELECT *, sum(CASE WHEN problem = before THEN 0 ELSE 1 END) OVER (
    PARTITION BY store ORDER BY physicalOffset, topic, queueId ROWS UNBOUNDED PRECEDING
  ) AS run
  FROM (SELECT *, lag(problem, 1, -1) OVER (PARTITION BY store ORDER BY physicalOffset, topic, queueId) AS before
        FROM {{compared}})
)
WHERE problem > 0 GROUP BY store, run, problem, kind
"""
_GAPS: Final = f"""
SELECT store, '{ERROR}' AS severity, 'gap' AS kind, CASE WHEN min(topic) = max(topic) THEN min(topic) END AS topic,
       CASE WHEN count(*) = 1 THEN min(queueId) END AS queueId,
       CASE WHEN count(*) = 1 THEN min(first_record) END AS queueOffset,
       CAST(NULL AS BIGINT) AS physicalOffset, sum(abs(missing_offsets)) AS count,
       concat(sum(abs(missing_offsets)),
              CASE WHEN min(missing_offsets) > 0 THEN ' queue offsets between others have no record, in '
                   ELSE ' records have the same queue offset as another, in ' END, count(*), ' queues') AS detail
FROM {{queues}} WHERE missing_offsets <> 0 AND topic IS NOT NULL GROUP BY store, missing_offsets > 0
"""
_INDEX: Final = f"""
SELECT own.store, '{ERROR}' AS severity, 'index entry without record' AS kind, CAST(NULL AS STRING) AS topic,
       CAST(NULL AS INT) AS queueId, CAST(NULL AS BIGINT) AS queueOffset, min(own.physicalOffset) AS physicalOffset,
       count(*) AS count, concat('of index file ', own.file, ', first entry ', min(own.entry)) AS detail
FROM {{index}} AS own JOIN {{ends}} AS ends ON own.store = ends.store
WHERE own.physicalOffset >= log_begin AND own.physicalOffset < log_end AND NOT EXISTS (
  SELECT 1 FROM {{records}} AS log WHERE log.store = own.store AND log.physicalOffset = own.physicalOffset
)
GROUP BY own.store, own.file
"""


def _records(stores: Stores, queues: Any) -> Any:
    """Return the records; `queues` (a pyarrow Table) has the first units of the queues."""
    log = replace(stores, mode="PERMISSIVE").messages(
        *("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "crcOk", "storePath"),
        dropReplicas="false",  # each store is checked by itself
    )
    units = [row for row in queues.select(_OF_QUEUE.names).to_pylist() if row["first_unit"] is not None]
    tables = {"units_of_queues": pa.Table.from_pylist(units, _OF_QUEUE), **_homes(stores, units)}
    frames: dict[str, Any] = {name: stores.engine.local(table) for name, table in tables.items()}
    return stores.sql(_RECORDS, log=log, **frames)


def _homes(stores: Stores, units: list[dict[str, Any]]) -> dict[str, Any]:
    """Return where the queues of each topic begin in the log, and where they do for topics that a store does not know.

    A topic without queues in a store with others was deleted; it may have been created again since.
    """
    listed = stores.rows("SELECT store, topic, attributes FROM {topics}", topics=stores.table("topics")).to_pylist()
    homes: dict[tuple[str, str], dict[str, Any]] = {}
    for row in units:
        key = row["store"], row["topic"]
        begins_at = min(row["first_unit_at"], homes[key]["begins_at"] if key in homes else NEVER)
        homes[key] = {"store": row["store"], "topic": row["topic"], "begins_at": begins_at, "has_batches": False}
    with_units = {row["store"] for row in units}
    for row in listed:
        own = {"store": row["store"], "topic": row["topic"], "begins_at": NEVER if row["store"] in with_units else 0}
        has_batches = dict(row["attributes"] or ()).get("queue.type") == "BatchCQ"
        homes.setdefault((row["store"], row["topic"]), own)["has_batches"] = has_batches
    known = sorted({row["store"] for row in listed} & with_units)
    fallbacks = [{"store": store, "begins_at": NEVER} for store in known]
    return {
        "homes": pa.Table.from_pylist(list(homes.values()), _HOME),
        "fallbacks": pa.Table.from_pylist(fallbacks, _FALLBACK),
    }


def _units(stores: Stores) -> Any:
    return stores.sql(_UNITS, queues=stores.table("consumequeue"))


def queues(stores: Stores) -> Any:
    """Return one row per queue: summaries of log and units, and whether they agree. One pass, with the CRC of each body."""
    # Queues are collected here, before the log is read.
    own_queues = stores.rows(_OWN_QUEUES, units=_units(stores))
    log_queues = stores.sql(_LOG_QUEUES, records=_records(stores, own_queues))
    return stores.rows(_QUEUES, log_queues=log_queues, own_queues=stores.engine.local(own_queues))


def counted(findings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return severity -> number of findings, errors first. `or more` marks the last if the list of findings was cut."""
    counts = Counter(finding["severity"] for finding in findings)
    shown = {severity: f"{counts[severity]:,}" for severity in (ERROR, NOTE) if counts[severity]}
    if counts.total() == FINDINGS_MAX:
        shown[list(shown)[-1]] += " or more"
    return shown


def findings(stores: Stores, queues: Any, *, with_index: bool = False) -> Any:
    """Return the problems in the collected `queues` (a pyarrow Table): the first FINDINGS_MAX, worst kinds first.

    If there are no differences, nothing is read, and the table has no rows and only the column `severity`.
    """
    rows = queues.to_pylist()
    parts = []
    if rows:
        queue_rows = stores.engine.local(queues)
        ends = stores.sql(_ENDS, queues=queue_rows)
        if any(row["wrong_crc"] or row["damaged"] for row in rows):
            parts.append(stores.sql(_DAMAGED, records=_records(stores, queues)))
        if not all(row["agrees"] for row in rows if row["topic"] is not None):
            wrong = stores.sql(_WRONG, queues=queue_rows)
            compared = stores.sql(_COMPARED, records=_records(stores, queues), units=_units(stores), wrong=wrong, ends=ends)
            parts.append(stores.sql(_DIFFERENCES, compared=compared))
        if any(row["missing_offsets"] for row in rows):
            parts.append(stores.sql(_GAPS, queues=queue_rows))
        if with_index:
            parts.append(stores.sql(_INDEX, index=stores.table("index"), records=_records(stores, queues), ends=ends))
    if not parts:
        return pa.table({"severity": pa.array([], pa.string())})
    frames = {f"part_{number}": part for number, part in enumerate(parts)}
    union = " UNION ALL ".join(f"SELECT {_NAMES} FROM {{{name}}}" for name in frames)
    return stores.rows(_FINDINGS.replace("{parts}", union), **frames)
