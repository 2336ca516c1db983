"""Output of a record of the log, field by field, with the queue unit and index entries that point at it."""

import re
from typing import Any, Final

from isal.isal_zlib import crc32

from pocketmq.runtime.peer_text import escaped
from pocketmq.store.format import layout
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels
from pocketmq.store.format.host import host_text
from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.key_hash import key_hashes
from pocketmq.store.format.message import (
    COMPRESSED_FLAG,
    MULTI_TAGS_FLAG,
    SCHEDULE_TOPIC,
    TRANSACTION_TYPE_MASK,
    TRANSACTION_UNQUEUED_FLAG,
)
from pocketmq.store.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, TAGS, decode_properties
from pocketmq.store.format.record import CRC_MASK, PROPERTIES_SIZE_MAX
from pocketmq.store.offline.index_files import index_files
from pocketmq.store.offline.log_walk import UNWRITTEN, first_valid, why_invalid
from pocketmq.store.offline.queue_files import QueueFiles
from pocketmq.store.offline.store_folder import RowFile
from pocketmq.store_tools.explain.drawing import WRONG, Drawing, Field, note, parsed, preview
from pocketmq.store_tools.files.selection import record_keys
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.files.value_text import COMPRESSION_MASK, COMPRESSIONS, time_text

_TRANSACTIONS: Final = {0x4: "prepared", 0x8: "commit", 0xC: "rolled back"}
_MAGICS: Final = {
    layout.MESSAGE_MAGIC_CODE: "a record, version 1",
    layout.MESSAGE_MAGIC_CODE_V2: "a record, version 2 (long topic)",
}
_SHOWN_UNWRITTEN: Final = 16


def flag_names(sys_flag: int) -> str:
    """Return the names of the bits of sysFlag."""
    algorithm = COMPRESSIONS.get(sys_flag & COMPRESSION_MASK, "unknown algorithm")
    kind = _TRANSACTIONS.get(sys_flag & TRANSACTION_TYPE_MASK)
    names = {
        COMPRESSED_FLAG: f"body compressed, {algorithm}",
        MULTI_TAGS_FLAG: "multi tags",
        TRANSACTION_TYPE_MASK: f"transaction {kind}{' (in no queue)' if sys_flag & TRANSACTION_UNQUEUED_FLAG else ''}",
        layout.BORNHOST_V6_FLAG: "born host IPv6",
        layout.STOREHOSTADDRESS_V6_FLAG: "store host IPv6",
        0x40: "needs unwrap",
        0x80: "inner batch",
    }
    return ", ".join(name for bits, name in names.items() if sys_flag & bits) or "no flag set"


def draw(files: StoreFiles, file: RowFile, position: int, mark: int) -> Drawing:
    """Return the drawing of the record, layout.BLANK or unwritten bytes at `position` of a log file. Raises OSError."""
    physical_offset = file.start_offset + position
    reason = why_invalid(files.log, physical_offset)
    head = file.read(position, 8).tobytes()
    if len(head) == 8 and int.from_bytes(head[4:], "big", signed=True) == layout.BLANK_MAGIC_CODE:
        return _draw_blank(file, position, head, mark)
    if reason == UNWRITTEN or len(head) < 8:
        drawing = Drawing(f"physical offset {physical_offset}: {UNWRITTEN}", position, mark)
        data = file.read(position, _SHOWN_UNWRITTEN).tobytes()
        drawing.row(0, data, "(unwritten)", "", "the end of the log, or preallocated bytes after it")
        _tell_next(drawing, files, physical_offset)
        return drawing
    size = int.from_bytes(head[:4], "big", signed=True)
    whole = max(min(size, file.size - position), min(256, file.size - position)) if size > 0 else 256
    data = file.read(position, whole).tobytes()
    what = "invalid record" if reason else "record"
    drawing = Drawing(f"{what} at physical offset {physical_offset}, byte {position} of {file.path}", position, mark)
    fields = list(parsed(layout.RECORD, data))
    values = {field.name: field.value for field in fields}
    for field in fields:
        _draw_field(drawing, field, values, physical_offset, file.size - position)
    if reason:
        drawing.wrong(reason)
        _tell_next(drawing, files, physical_offset)
    else:
        _tell_pointers(drawing, files, physical_offset, values)
    return drawing


def _tell_next(drawing: Drawing, files: StoreFiles, physical_offset: int) -> None:
    following = first_valid(files.log, physical_offset + 1, files.log.end_offset)
    drawing.below("no valid record follows" if following is None else f"the next valid record is at {following}")


def _draw_blank(file: RowFile, position: int, head: bytes, mark: int) -> Drawing:
    drawing = Drawing(f"BLANK: the end of {file.path}, at byte {position}", position, mark)
    size, magic_code = parsed(layout.BLANK, head)
    room = file.size - position
    wrong = "" if size.value == room else f"the rest of the file has {room} bytes"
    drawing.row(0, size.data, size.name, str(size.value), "bytes up to the end of the file, these 8 included", wrong)
    drawing.row(
        4, magic_code.data, magic_code.name, f"0x{layout.BLANK_MAGIC_CODE & 0xFFFFFFFF:08X}", "the next record did not fit"
    )
    drawing.below(f"the log continues at physical offset {file.end_offset}")
    return drawing


def _draw_field(drawing: Drawing, field: Field, values: dict[str, Any], physical_offset: int, room: int) -> None:
    if field.name == "properties":
        _draw_properties(drawing, field)
        return
    shown, meaning = _shown(field, values)
    if field.name == "total_size":
        meaning = f"bytes; the next record is at {physical_offset + field.value}"
    drawing.row(field.position, field.data, field.name, shown, meaning, _wrong(field, values, physical_offset, room))


def _shown(field: Field, values: dict[str, Any]) -> tuple[str, str]:
    """Return (value, meaning) as text."""
    name, value = field.name, field.value
    if name.endswith("timestamp_ms"):
        return str(value), time_text(value) + (", the client's clock" if name.startswith("born") else ", the broker's clock")
    if name.endswith("host"):
        return host_text(value), "address, then port in 4 bytes"
    if name in ("magic_code", "body_crc"):
        right = "CRC-32 of the stored body & 0x7FFFFFFF: correct"
        return f"0x{value & 0xFFFFFFFF:08X}", _MAGICS.get(value, "") if name == "magic_code" else right
    if name == "sys_flag":
        return f"0x{value & 0xFFFFFFFF:X}", flag_names(value)
    if name == "queue_id":
        is_scheduled = values.get("topic") == SCHEDULE_TOPIC.encode()
        return str(value), f"delay level {value + 1}" if is_scheduled else ""
    if name == "reconsume_times":
        return str(value), f"sent back {value} times" if value else "never sent back"
    if name == "prepared_transaction_offset":
        return str(value), "physical offset of the half message" if value else "no transaction"
    if name == "body":
        return "(compressed)" if values["sys_flag"] & COMPRESSED_FLAG else preview(value), "as the client sent it"
    return preview(value) if name == "topic" else str(value), note("RECORD", name)


def _wrong(field: Field, values: dict[str, Any], physical_offset: int, room: int) -> str:
    """Return why a field is invalid, or "". `room`: bytes from the record's begin to the end of its file."""
    name, value = field.name, field.value
    if name == "total_size" and not 0 < value <= room:
        return f"the file has only {room} bytes from here on"
    if name == "magic_code" and value not in _MAGICS:
        return "records have 0xDAA320A7 or 0xDAA320AB"
    if name == "body_crc":
        body = values.get("body")
        if not isinstance(body, bytes):
            return "the body is incomplete"
        return "" if crc32(body) & CRC_MASK == value else f"the body has 0x{crc32(body) & CRC_MASK:08X}"
    if name == "physical_offset" and value != physical_offset:
        return f"the record is at {physical_offset}: it is left over from before a truncation"
    if name == "body_size" and not 0 <= value <= room:
        return "longer than the file"
    if name == "topic" and (not value or 0 in value):
        return "empty, or contains a zero byte"
    if name == "properties_size" and value > PROPERTIES_SIZE_MAX:
        return f"at most {PROPERTIES_SIZE_MAX} bytes are allowed"
    return ""


def _draw_properties(drawing: Drawing, field: Field) -> None:
    drawing.row(field.position, field.data, field.name, "", "name 01 value 02 name 01 value ...")
    for entry in re.finditer(rb"[^\x02]+", field.value):
        name, divider, value = entry[0].partition(NAME_VALUE_SEPARATOR.encode())
        text = value.decode("utf-8", "replace")
        odd = "" if divider and name and value else "not a valid entry: readers skip it"
        meaning = f"tags code {tags_code(text)}" if name == TAGS.encode() else ""
        label = f"  {escaped(name.decode('utf-8', 'replace'))}"
        drawing.row(field.position + entry.start(), entry[0], label, escaped(text), odd or meaning)
    if field.value.endswith(PROPERTY_SEPARATOR.encode()):
        drawing.below("the property string ends with a separator, as written by 5.x")


def _tell_pointers(drawing: Drawing, files: StoreFiles, physical_offset: int, values: dict[str, Any]) -> None:
    """Add lines about the queue unit and the index entries of a valid record."""
    topic = values["topic"].decode("utf-8", "replace")
    if values["sys_flag"] & TRANSACTION_UNQUEUED_FLAG:
        drawing.below("it is in no queue, because it is prepared or rolled back")
    else:
        _tell_unit(drawing, files, physical_offset, values, topic)
    keys = sorted(record_keys(decode_properties(values["properties"])))
    for key in keys:
        key_hash = key_hashes([f"{topic}#{key}"])[0]
        found = [
            f"entry {number}, {index.path}:{index.entry_position(number)}"
            for index in index_files(files)
            for number, offset in index.find({key_hash})
            if offset == physical_offset
        ]
        drawing.below(f"key {key} (hash of {topic}#{key}: {key_hash}): {'; '.join(found) or 'not in the index'}")
    if not keys:
        drawing.below("it has no key, so the index has no entry for it")


def _tell_unit(drawing: Drawing, files: StoreFiles, physical_offset: int, values: dict[str, Any], topic: str) -> None:
    queue = QueueFiles(files, (topic, values["queue_id"]))
    queue_offset = values["queue_offset"]
    units = queue.units(queue_offset, 1) if queue_offset >= 0 else ()
    path, position = queue.place(queue_offset)
    if not len(units) or not units["size"][0]:  # type: ignore[call-overload]
        drawing.below(f"its queue {topic}/{values['queue_id']} has no unit {queue_offset}", "yellow")
        return
    offset, size, code = units.tolist()[0]  # type: ignore[union-attr]
    is_own = (offset, size) == (physical_offset, values["total_size"])
    target, style = ("it", "") if is_own else (offset, "yellow")
    drawing.below(f"queue unit {queue_offset} of {topic}/{values['queue_id']} points at {target}: {path}:{position}", style)
    drawing.below(f"its tags code is {code}: {code_meaning(code, topic, values)}")


def code_meaning(code: int, topic: str, values: dict[str, Any]) -> str:
    """Return the meaning of a unit's tags code, compared with the fields of its record."""
    properties = decode_properties(values["properties"])
    tags = properties.get(TAGS)
    if code <= layout.EXT_ADDRESS_MAX:
        return f"the address {code + (1 << 63)} in consumequeue_ext"
    if topic == SCHEDULE_TOPIC and "DELAY" in properties:
        due = DelayLevels(DEFAULT_MESSAGE_DELAY_LEVEL).delay_ms(int(values["queue_id"]) + 1)
        wait = code - values["store_timestamp_ms"]
        usual = "" if wait == due else f", not the {due} ms of level {values['queue_id'] + 1} in the default table"
        return f"to be delivered at {time_text(code)}, {wait} ms after it was stored{usual}"
    if not tags:
        return "no tags" if code == 0 else f"{WRONG}the record has no tags, so 0 is right"
    right = tags_code(tags)
    return f"String.hashCode of {tags!r}" if code == right else f"{WRONG}{tags!r} has the hash {right}"
