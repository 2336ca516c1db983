"""Checks of the records that a broker serves from a store, against those of another broker or the files on disk.

Records must be the same byte for byte at the same queue offsets, by key, by tag and by time; new ones follow after them.
"""

import bisect
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.interop.servers import Flavour
from tests.interop.wire import QUERY_MESSAGE, Connection, Record, query_fields
from tests.interop.wire import records as decoded_records

VIEW_MESSAGE_BY_ID = 33

Queue = tuple[str, int]
Records = dict[Queue, list[Record]]

_PULLED_AT_ONCE = 500
_KEYS_ASKED, _TIMES_ASKED = 60, 12
_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(?=\s*:)')
_OF_A_RUN = {"abort", "abort.bak"}
# Binary files that every broker continues to write.
_GOES_ON = re.compile(r"abort|checkpoint|lock|timerwheel|timerlog/\d+|config/timercheck|.*\.bak")


def queues_on_disk(store: Path) -> list[Queue]:
    """Returns every queue that has a file. (Apache creates a queue when it is queried.)"""
    folders = {path.parent for path in (store / "consumequeue").glob("*/*/*")}
    return sorted((folder.parent.name, int(folder.name)) for folder in folders)


def read_all(connection: Connection, queues: Iterable[Queue]) -> Records:
    """Returns every record of the queues in order. Topics without a configuration cannot be pulled."""
    found, topics = {}, connection.topic_table()
    for topic, queue_id in queues:
        if topic not in topics:
            continue
        records = connection.read_queue(topic, queue_id, count=_PULLED_AT_ONCE)
        first = connection.min_offset(topic, queue_id)
        assert [record.queue_offset for record in records] == [*range(first, first + len(records))], (topic, queue_id)
        found[topic, queue_id] = records
    return found


def check_begins_with(served: Records, earlier: Records) -> None:
    """Checks that the old records are unchanged, byte for byte, and that new ones follow after them."""
    for queue, records in earlier.items():
        raw = [record.raw for record in served.get(queue, [])[: len(records)]]
        same = sum(1 for mine, theirs in zip(raw, records, strict=False) if mine == theirs.raw)
        assert same == len(records), f"{queue}: {len(records)} records before, {len(raw)} now, {same} of them the same"


def check_by_key(connection: Connection, records: Records) -> int:
    """Checks that a sample of records is found by first key and by unique key. Returns the number of queries."""
    keyed = [record for queue in records.values() for record in queue if record.properties.get("KEYS")]
    asked = keyed[:: max(1, len(keyed) // _KEYS_ASKED)]
    for record in asked:
        for key in (record.properties["KEYS"].split(" ")[0], record.properties.get("UNIQ_KEY")):
            if key:
                found = connection.query(record.topic, key)
                assert record.raw in [one.raw for one in found], (record.topic, key, record.physical_offset)
    return len(asked)


def check_every_key(connection: Connection, records: Records) -> int:
    """Checks that every record with keys is found by its first key, unless the key has more than 64 records.

    Returns the number of queries.
    """
    keyed = [record for queue in records.values() for record in queue if record.properties.get("KEYS")]
    requests: list[tuple[int, dict[str, object], bytes]] = [
        (QUERY_MESSAGE, {**query_fields(record.topic, record.properties["KEYS"].split(" ")[0])}, b"") for record in keyed
    ]
    for record, answer in zip(keyed, connection.ask_many(requests), strict=True):
        found = decoded_records(answer.body)
        assert len(found) == 64 or record.raw in [one.raw for one in found], (record.topic, record.physical_offset)
    return len(keyed)


def check_by_id(connection: Connection, records: Records) -> int:
    """Checks that every record is found by its physical offset, which a message id contains. Returns their number."""
    all_records = [record for queue in records.values() for record in queue]
    requests: list[tuple[int, dict[str, object], bytes]] = [
        (VIEW_MESSAGE_BY_ID, {"offset": record.physical_offset}, b"") for record in all_records
    ]
    for record, answer in zip(all_records, connection.ask_many(requests), strict=True):
        assert answer.body == record.raw, (record.topic, record.physical_offset)
    return len(all_records)


def check_by_tag(connection: Connection, records: Records) -> int:
    """Checks that a pull by tag returns all records that have it and none with another tag. Returns their number."""
    count = 0
    for (topic, queue_id), queue in records.items():
        tags = sorted({record.properties.get("TAGS", "") for record in queue})
        if topic == "SCHEDULE_TOPIC_XXXX" or len(tags) < 2:  # its units have the delivery time in place of the tag
            continue
        came = connection.read_queue(topic, queue_id, count=_PULLED_AT_ONCE, expression=tags[-1])
        assert {_hash(record.properties.get("TAGS", "")) for record in came} == {_hash(tags[-1])}
        # The queue may have more records by now.
        wanted = [record.raw for record in queue if _hash(record.properties.get("TAGS", "")) == _hash(tags[-1])]
        assert [record.raw for record in came[: len(wanted)]] == wanted, (topic, queue_id, tags[-1])
        count += len(came)
    return count


def _hash(tag: str) -> int:
    """Returns Java's hash code of a tag, which is what a queue unit contains."""
    code = 0
    for char in tag:
        code = (31 * code + ord(char)) & 0xFFFFFFFF
    return code


def check_by_time(connection: Connection, records: Records, flavour: Flavour, version: str, store: Path) -> int:
    """Checks queue offsets by store time: exactly, except those of Apache's 4.9.4. Returns the number of queries."""
    count, is_nearest = 0, flavour.name == "apache" and version == "4.9.4"
    for (topic, queue_id), queue in records.items():
        files = len([*(store / "consumequeue" / topic / str(queue_id)).iterdir()])
        if not queue or is_nearest and files > 1:  # 4.9.4 searches only one file, chosen by its modification time
            continue
        first = queue[0].queue_offset
        times = [record.store_timestamp_ms for record in queue]
        for time_ms in times[:: max(1, len(times) // _TIMES_ASKED)]:
            for asked in (time_ms - 1, time_ms, time_ms + 1):
                for bound in ("",) if is_nearest else ("", "LOWER", "UPPER"):
                    extra = {"boundaryType": bound} if bound else {}
                    answer = connection.offset_by_time(topic, queue_id, asked, **extra)
                    indexes = nearest_indexes(times, asked) if is_nearest else {index_by_time(times, asked, bound)}
                    wanted = {first + index for index in indexes}
                    assert answer in wanted, (topic, queue_id, asked, bound, answer, wanted)
                    count += 1
    return count


def index_by_time(times: list[int], asked: int, bound: str) -> int:
    """Returns the answer of 5.x as an index; without a boundary it is LOWER."""
    return max(bisect.bisect_right(times, asked) - 1, 0) if bound == "UPPER" else bisect.bisect_left(times, asked)


def nearest_indexes(times: list[int], asked: int) -> set[int]:
    """Returns the possible answers of 4.9.4 as indexes: the nearest record, the last if all are earlier."""
    left, right = bisect.bisect_left(times, asked), bisect.bisect_right(times, asked)
    if left < right:
        return {*range(left, right)}
    if left == 0:
        return {0}
    if left == len(times):
        return {len(times) - 1}
    before, after = asked - times[left - 1], times[left] - asked
    return {left - 1} if before <= after else {left}


# --- other files of a store -----------------------------------------------------------------------------------------


def files(store: Path) -> dict[str, bytes]:
    """Returns every file except those of the log, the queues and the index, which grow and are truncated."""
    kinds = ("commitlog", "consumequeue", "index")
    paths = [path for path in store.rglob("*") if path.is_file() and path.relative_to(store).parts[0] not in kinds]
    return {str(path.relative_to(store)): path.read_bytes() for path in paths}


def document(data: bytes) -> Any:
    """Parse a file of `config/`: JSON whose keys may be bare numbers."""
    return json.loads(_BARE_KEY.sub(lambda m: m[1] or f'{m[2]}"{m[3]}"', data.decode()))


def check_carried(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """Checks that no file is lost, JSON documents have all their keys, and other files (but those in use) are unchanged."""
    lost = before.keys() - after.keys() - _OF_A_RUN
    assert not lost, f"lost files: {sorted(lost)}"
    for name, data in before.items():
        if name.endswith(".json"):
            missing = [*_missing(document(data), document(after[name]))]
            assert not missing, f"{name} has lost {missing}"
        elif not _GOES_ON.fullmatch(name):
            assert after[name] == data, f"{name} has changed"


def _missing(before: Any, after: Any, path: str = "") -> Iterable[str]:
    """Yields the paths of the keys that another document lacks. A missing progress equals 0."""
    if isinstance(before, dict):
        for key, value in before.items():
            if key not in after and value == 0 and path.startswith("/offsetTable"):
                continue
            if not isinstance(after, dict) or key not in after:
                yield f"{path}/{key}"
            else:
                yield from _missing(value, after[key], f"{path}/{key}")


def complaints(log: Path) -> dict[str, int]:
    """Count the warnings and errors of Apache's store, by level and text.

    Other parts of its broker also log what a busy machine or its own shutdown causes, such as connections that end; and the
    store how long a put took, if it took long.
    """
    counts: dict[str, int] = defaultdict(int)
    for line in log.read_text(errors="replace").splitlines():
        found = re.match(r"[\d-]+ [\d:,]+ (WARN|ERROR) RocketmqStore(?:Error)? (.*)", line)
        if found and not re.search(r"(elapsed|cost) time\(ms\)=", found[2]):
            counts[f"{found[1]} {found[2]}"] += 1
    return dict(counts)
