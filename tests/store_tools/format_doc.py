"""Generator of the tables and examples of docs/format.md, from the declarations in `layout` and PocketMQ's encoders.

The text of the document is written by hand. The blocks between `<!-- fields NAME -->`, `<!-- example NAME -->` or
`<!-- checks -->` and `<!-- end -->` are generated; `python -m tests.store_tools.format_doc` renders them again.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format import layout
from pocketmq.store.format.host import host_text
from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.key_hash import key_hashes
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.format.record import encode_record, record_size, topic_part
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.log.quarantine import filler_record
from pocketmq.store.queue.consume_queue import FileSum
from pocketmq.store.recovery.clean_stop import CleanStop, IndexEnd, QueueEnd, encode
from pocketmq.store.timer.timer_store import TimerStore
from pocketmq.store_tools.explain import notes
from pocketmq.store_tools.explain.drawing import parsed

NOTES: Final = {
    **notes.NOTES,
    "CHECKPOINT_SEAL": {
        "physic_msg_timestamp_ms": "as above",
        "logics_msg_timestamp_ms": "as above",
        "index_msg_timestamp_ms": "as above",
        "master_flushed_offset": "as above",
        "confirm_physical_offset": "as above",
        "seal": "`504D5143`, then the CRC-32 of the preceding 40 bytes",
    },
    "MARK_HEADER": {
        "seal": "CRC-32 of all bytes that follow, up to the end of the payload",
        "magic": "`504D514D`",
        "size": "size of the payload, which follows this header",
        "sequence": "incremented with each write: the newer of two slots has the greater number",
        "boot": "CRC-32 that identifies the running kernel and the mount: a live slot is valid only if both are the same",
    },
    "LEVEL_MARK": {
        "level": "1 is the first",
        "next_offset": "all earlier messages of its queue are delivered",
        "physical_offset": "physical offset of the record before next_offset: if it is another one, the row is ignored",
    },
    "TIMER_STATE": {
        "read_time_ms": "as in timercheck",
        "log_end": "as in timercheck",
        "queue_offset": "as in timercheck",
        "delivered_before_ms": "as in timercheck",
        "delivered_before_offset": "as in timercheck",
        "log_begin": "position from which on no file of the timer log may be missing; -1: unknown",
        "log_sum": "CRC-32 of the units in the last file of the timer log, up to log_end; -1: unknown",
        "wheel_sum": "CRC-32 of timerwheel after a clean stop; else -1",
    },
}
"""The notes of `explain`, and those about fields that it does not show."""

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "format.md"
_BLOCK: Final = re.compile(r"(<!-- (fields|example|checks) ?(\w*) -->\n).*?(<!-- end -->)", re.DOTALL)
_BYTES_A_LINE: Final = 16
_V6_FLAGS: Final = layout.BORNHOST_V6_FLAG | layout.STOREHOSTADDRESS_V6_FLAG

FOUND: Final = {
    "total_size": "the lengths no longer add up to it",
    "magic_code": "it is neither of the two values",
    "body_crc": "it differs from the body's CRC",
    "physical_offset": "it is not the record's position",
    "body_size": "the lengths no longer add up",
    "body": "body_crc does not match",
    "topic_size": "the lengths no longer add up",
    "properties_size": "the lengths no longer add up",
}
"""How a change of a field is detected from the record alone. Changes of other fields are not."""

ELSEWHERE: Final = {
    "queue_id": "`verify`: no queue has a unit for it",
    "queue_offset": "`verify`: the queue has another unit there",
    "sys_flag": "the two bits for host sizes: the lengths no longer add up; other bits: never",
    "store_timestamp_ms": "`verify`: index entries with other times, if the record has keys",
    "topic": "`verify`: no such queue; always detected: an empty topic, or a zero byte in it",
    "properties": "always detected: zeros through a whole disk sector, or at the end; `verify`: tags and keys that "
    "differ from queue or index",
}

_GOLDEN_RECORD: Final = (
    "000000d5daa320a75702b89e00000002000000000000000000000013000000000000f69a00000000000001a1fc2417607f0000010000c1e4"
    "000001a1fc2417627f000001000049df00000000000000000000000000000001c70c476f6c64656e4e6f726d616c006d4b455953016b6579"
    "2d373802554e49515f4b45590146443030303030303030303030303030303030303030303030303030303030323546393634453045324632"
    "4136374243324636303030364102434c555354455201476f6c64656e436c757374657202544147530142424242"
)
GOLDEN_PLACE: Final = ("v4_clean", 63130)
"""Golden store and physical offset of `_GOLDEN_RECORD`."""

_HOST_V4: Final = bytes((192, 0, 2, 7)) + (10911).to_bytes(4, "big")
_HOST_V6: Final = bytes.fromhex("20010db8000000000000000000000001") + (40312).to_bytes(4, "big")
_BORN_MS: Final = 1_700_000_000_000
_STORED_MS: Final = 1_700_000_000_025


Part = tuple[str, Any, bytes]

# --- samples --------------------------------------------------------------------------------------------------------


def _record(topic: str, born_host: bytes, queue_offset: int, physical_offset: int) -> bytes:
    properties = encode_properties({"KEYS": "order-17", "TAGS": "paid"}).encode()
    message = Message(topic, 3, b"Hello", born_host, _HOST_V4, 0, 0, _BORN_MS, properties_bytes=properties)
    magic_code, topic_bytes = topic_part(topic.encode())
    size = record_size(message, len(topic_bytes))
    return encode_record(message, magic_code, topic_bytes, size, queue_offset, physical_offset, _STORED_MS)


def _unit(code: int, physical_offset: int = 1314, size: int = 128) -> bytes:
    return layout.CONSUME_QUEUE_UNIT_STRUCT.pack(physical_offset, size, code)


def _index() -> bytes:
    """Return an index file of four slots and five entries; three entries are used, two of them in one slot."""
    disk = MemoryDisk()
    file = IndexFile(disk, "/index/20231114221320025", 4, 5)
    keys = ["TopicTest#order-17", "TopicTest#order-18", "TopicTest#order-21"]
    places = [(1000, _STORED_MS), (1157, _STORED_MS + 900), (1314, _STORED_MS + 2500)]
    file.put_keys(np.asarray(key_hashes(keys)).tolist(), places)
    file.close()
    return bytes(disk.read_file("/index/20231114221320025"))


def _checkpoint() -> bytes:
    return layout.CHECKPOINT_STRUCT.pack(_STORED_MS, _STORED_MS - 40, _STORED_MS - 900, 0, 0)


@cache
def _timers() -> MemoryDisk:
    """Return a disk with a timer wheel of 240 slots and a timer log with three units per file.

    Four messages are in it: two due in the same second, one rolled, and another one.
    """
    disk = MemoryDisk()
    timers = TimerStore(
        disk, lambda name: f"/{name.rpartition('/')[2]}", log_file_size=180, slots_total=120, roll_window_slots=30,
    )  # fmt: skip
    timers.recover(_BORN_MS, 2000, 4)
    for number, wait_s in enumerate((10, 10, 45, 12)):
        timers.put(_BORN_MS + wait_s * 1000, _BORN_MS, 1314 + 128 * number, 128, tags_code("TopicTest"))
    timers.mark(_BORN_MS + 1000, 4)
    timers.flush(timers.state, _BORN_MS + 1025)
    timers.close()
    return disk


def _timer_log() -> list[Part]:
    data, size = _timers().read_file("/timerlog/" + "0" * 20), layout.TIMER_LOG_UNIT_SIZE
    parts: list[Part] = [(f"unit {n}", layout.TIMER_LOG_UNIT, data[size * n :][:size]) for n in range(3)]
    return [*parts, ("the end of the file", layout.TIMER_LOG_BLANK, data[3 * size :][: layout.TIMER_LOG_BLANK_SIZE])]


def _timer_slot() -> bytes:
    number = (_BORN_MS // 1000 + 10) % 240
    return _timers().read_range("/timerwheel", number * layout.TIMER_WHEEL_SLOT_SIZE, layout.TIMER_WHEEL_SLOT_SIZE)


def _timer_checkpoint() -> list[Part]:
    data, size = _timers().read_file("/timercheck"), layout.TIMER_CHECKPOINT_SIZE
    seal = data[size:][: layout.TIMER_CHECKPOINT_SEAL_STRUCT.size]
    return [("", layout.TIMER_CHECKPOINT, data[:size]), ("PocketMQ's own", layout.TIMER_CHECKPOINT_SEAL, seal)]


def _timer_state() -> list[Part]:
    size = layout.MARK_HEADER_STRUCT.size
    data = _timers().read_range("/timermark", 2 * layout.MARK_SLOT_SIZE, 2 * layout.MARK_SLOT_SIZE)
    data = next(slot for slot in (data[: layout.MARK_SLOT_SIZE], data[layout.MARK_SLOT_SIZE :]) if any(slot))
    state = data[size:][: layout.TIMER_STATE_STRUCT.size]
    return [("a durable slot", layout.MARK_HEADER, data[:size]), ("its payload", layout.TIMER_STATE, state)]


def _clean_stop() -> bytes:
    left = CleanStop(
        clean=True,
        log_end=1442,
        last_record=1314,
        log_file_size=1 << 30,
        index_file_size=420_000_040,
        queues={"TopicTest": {3: QueueEnd(0, 3, 1442)}},
        sums={"TopicTest": {3: (FileSum(0, 60, 0xA1B2C3D4),)}},
        index=[IndexEnd("20231114221320025", 4, 1314)],
    )
    return msgspec.json.format(encode(left), indent=2)


def _index_parts() -> list[Part]:
    data = _index()
    slots, entries = layout.INDEX_HEADER_SIZE, layout.INDEX_HEADER_SIZE + 4 * layout.INDEX_SLOT_SIZE
    parts: list[Part] = [("header", layout.INDEX_HEADER, data[:slots])]
    parts += [(f"slot {n}", layout.INDEX_SLOT, data[slots + 4 * n :][:4]) for n in range(4)]
    return parts + [(f"entry {n}", layout.INDEX_ENTRY, data[entries + 20 * n :][:20]) for n in range(5)]


def _one(declaration: Any, data: bytes) -> list[Part]:
    return [("", declaration, data)]


EXAMPLES: Final[dict[str, Callable[[], list[Part]]]] = {
    "record": lambda: _one(layout.RECORD, _record("TopicTest", _HOST_V4, 2, 1314)),
    "record_v2": lambda: _one(layout.RECORD, _record("%RETRY%" + "long-group-" * 11, _HOST_V6, 0, 1442)),
    "golden_record": lambda: _one(layout.RECORD, bytes.fromhex(_GOLDEN_RECORD)),
    "filler": lambda: _one(layout.RECORD, filler_record(160, 4096, _STORED_MS, "160 bytes at 4096 were invalid")),
    "blank": lambda: _one(layout.BLANK, layout.BLANK_STRUCT.pack(312, layout.BLANK_MAGIC_CODE)),
    "units": lambda: [
        ("of the record of the first example", layout.CONSUME_QUEUE_UNIT, _unit(tags_code("paid"))),
        ("blank", layout.CONSUME_QUEUE_UNIT, _unit(0, 0, 0x7FFFFFFF)),
        ("hole", layout.CONSUME_QUEUE_UNIT, _unit(layout.HOLE_TAGS_CODE, 4096, 160)),
        ("with the address 44 in consumequeue_ext", layout.CONSUME_QUEUE_UNIT, _unit(44 - (1 << 63))),
        ("of a delayed message", layout.CONSUME_QUEUE_UNIT, _unit(_STORED_MS + 10_000)),
    ],
    "ext_unit": lambda: _one(
        layout.CONSUME_QUEUE_EXT_UNIT,
        layout.CONSUME_QUEUE_EXT_FIXED_STRUCT.pack(34, tags_code("paid"), _STORED_MS, 14) + bytes(13) + b"\x05",
    ),
    "index": _index_parts,
    "checkpoint": lambda: _one(layout.CHECKPOINT, _checkpoint()),
    "timer_slot": lambda: _one(layout.TIMER_WHEEL_SLOT, _timer_slot()),
    "timer_log": _timer_log,
    "timer_checkpoint": _timer_checkpoint,
    "timer_state": _timer_state,
}
"""Examples by name: their parts, each with title, declaration and bytes."""


# --- drawing --------------------------------------------------------------------------------------------------------


def render(text: str) -> str:
    """Return `text` with every block rendered again. Raises KeyError for a block of an unknown name."""

    def block(match: re.Match[str]) -> str:
        kind, name = match[2], match[3]
        lines = fields(name) if kind == "fields" else checks() if kind == "checks" else example(name)
        return match[1] + "\n".join(lines) + "\n" + match[4]

    return _BLOCK.sub(block, text)


def fields(name: str) -> Iterator[str]:
    """Yield a declaration as a table: position, size and meaning of each field."""
    declaration = getattr(layout, name)
    context = {"sys_flag": 0, "magic_code": layout.MESSAGE_MAGIC_CODE}
    other = {"sys_flag": _V6_FLAGS, "magic_code": layout.MESSAGE_MAGIC_CODE_V2}
    at: int | None = 0
    yield "| at | field | bytes | |"
    yield "|---|---|---|---|"
    for subcon in declaration.subcons:
        size, other_size = _size(subcon, context), _size(subcon, other)
        shown = "variable" if size is None else f"{size}" if size == other_size else f"{size} or {other_size}"
        yield f"| {'' if at is None else at} | {subcon.name} | {shown} | {NOTES[name][subcon.name]} |"
        at = None if at is None or size is None else at + size


def _size(subcon: Any, context: dict[str, int]) -> int | None:
    """Return the size of a field in bytes, None if another field contains it."""
    try:
        return int(subcon.sizeof(**context))
    except Exception:  # construct's SizeofError, which may not be imported here: the data contains the length
        return None


def checks() -> Iterator[str]:
    """Yield a table of the checks that cover each field of a record."""
    yield "| field | a change is detected from the record itself | otherwise |"
    yield "|---|---|---|"
    for subcon in layout.RECORD.subcons:
        name = str(subcon.name)
        yield f"| {name} | {FOUND.get(name, '**no**')} | {ELSEWHERE.get(name, '' if name in FOUND else 'never')} |"


def example(name: str) -> Iterator[str]:
    """Yield the bytes of an example with their meaning, field by field."""
    if name == "clean_stop":
        yield from ("```json", _clean_stop().decode(), "```")
        return
    parts = EXAMPLES[name]()
    yield "```"
    position = 0
    for title, declaration, data in parts:
        if title:
            yield f"      {title}"
        for field in parsed(declaration, data):
            yield from _row(position + field.position, field.data, f"{field.name} = {_value(field.name, field.value)}")
        # Queue units are separate examples; other parts follow one another as in their file.
        position += 0 if name == "units" else len(data)
    yield "```"


def _row(position: int, data: bytes, meaning: str) -> Iterator[str]:
    for start in range(0, max(len(data), 1), _BYTES_A_LINE):
        shown = data[start : start + _BYTES_A_LINE].hex(" ")
        yield f"{position + start:4}  {shown:47}  {meaning if start == 0 else ''}".rstrip()


def _value(name: str, value: Any) -> str:
    if name.endswith("_host"):
        return host_text(value)
    if name == "magic_code":
        return f"{value} = 0x{value & 0xFFFFFFFF:08X}"
    if name == "properties":
        return " ".join(value.decode().replace("\x01", "=").split("\x02"))
    if isinstance(value, bytes):
        return value.decode() if value.isascii() and value.decode().isprintable() else f"({len(value)} bytes)"
    return str(value)


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text()))
