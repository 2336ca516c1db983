"""`explain`: shows the unit at one place of a store, field by field."""

import os
from typing import Any, Final

import click

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.store.format import layout
from pocketmq.store.format.multi_dispatch import INNER_MULTI_DISPATCH
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record_chain import MARK_SIZE, record_candidates
from pocketmq.store.offline.index_files import index_file
from pocketmq.store.offline.log_walk import record_bytes, why_invalid
from pocketmq.store.offline.store_folder import DamagedFileError, RowFile, is_index_name, is_row_name
from pocketmq.store_tools.explain.drawing import Drawing, parsed
from pocketmq.store_tools.explain.record import code_meaning, draw
from pocketmq.store_tools.files.selection import record_keys
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.files.value_text import time_text

# Maximum distance from a byte back to the start of its record.
_SEARCHED_BACK: Final = 8 << 20
_WHAT: Final = (
    "ROOT:PHYSICAL_OFFSET, or FILE:POSITION of a file in commitlog, consumequeue, consumequeue_ext, index or timerlog, "
    "of checkpoint, timerwheel or config/timercheck"
)


class PlaceError(click.UsageError):
    """Raised for a place that does not exist or is malformed; the text says what is accepted."""


def explain_place(place: str, commit_log_folder: str | None, console: Printer) -> bool:
    """Draw the unit at `place`; return whether it is valid. Raises PlaceError, NotAStoreError, OSError."""
    path, number = _split(place)
    if os.path.isdir(path):
        drawing = _physical(StoreFiles(path, commit_log_folder), number)
    else:
        drawing = _in_file(os.path.abspath(path), number)
    drawing.print(console)
    return drawing.is_valid


def _split(place: str) -> tuple[str, int]:
    path, colon, text = place.rpartition(":")
    if not colon and os.path.isfile(place):
        return place, 0
    try:
        number = int(text.replace(",", "").replace("_", ""), 0)
    except ValueError:
        number = -1
    path = os.path.expanduser(path)
    if not colon or number < 0:
        raise PlaceError(f"{place!r} is not a valid place: expected {_WHAT}")
    if not os.path.exists(path):
        raise PlaceError(f"there is no file or folder {path}")
    return path, number


def _in_file(path: str, position: int) -> Drawing:
    folder, name = os.path.split(path)
    size = os.path.getsize(path)
    if position >= size:
        raise PlaceError(f"{path} has {size} bytes, so it has no byte {position}")
    kind = os.path.basename(os.path.dirname(os.path.dirname(folder)))
    above = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    is_row = is_row_name(name)
    if is_row and kind == "consumequeue":
        return _unit(StoreFiles(above), RowFile(path, int(name), size), position)
    if is_row and kind == "consumequeue_ext":
        return _ext(RowFile(path, int(name), size), position)
    if is_row and os.path.basename(folder) == "timerlog":
        return _timer_unit(path, int(name), position)
    if is_row:
        files = StoreFiles(os.path.dirname(folder), folder)
        return _log(files, RowFile(path, int(name), size), position)
    if os.path.basename(folder) == "index" and is_index_name(name):
        return _index(StoreFiles(os.path.dirname(folder)), RowFile(path, 0, size), position)
    if name in _SMALL:
        return _SMALL[name](path, position)
    raise PlaceError(f"the format of {path} is unknown: expected {_WHAT}")


# --- the log ----------------------------------------------------------------------------------------------------------


def _physical(files: StoreFiles, physical_offset: int) -> Drawing:
    file = files.log.file_at(physical_offset)
    if file is None:
        begin, end = files.log.min_offset, files.log.end_offset
        raise PlaceError(f"the log's files have physical offsets {begin} to {end}, not {physical_offset}")
    return _log(files, file, physical_offset - file.start_offset)


def _log(files: StoreFiles, file: RowFile, position: int) -> Drawing:
    begin = _record_around(files, file, position)
    return draw(files, file, position if begin is None else begin, position)


def _record_around(files: StoreFiles, file: RowFile, position: int) -> int | None:
    """Return the position of the valid record that contains the byte `position` of a file, or begins there; else None."""
    begin = max(0, position - _SEARCHED_BACK)
    data = file.read(begin, position - begin + MARK_SIZE)
    for start in reversed(record_candidates(data, file.start_offset + begin).tolist()):
        at = begin + int(start)
        size = int.from_bytes(file.read(at, 4).tobytes(), "big", signed=True)
        if at == position or (at < position < at + size and not why_invalid(files.log, file.start_offset + at)):
            return at
    return None


# --- queues -----------------------------------------------------------------------------------------------------------


def _unit(files: StoreFiles, file: RowFile, position: int) -> Drawing:
    topic, queue_id = file.path.split("/")[-3], file.path.split("/")[-2]
    begin = position - position % layout.CONSUME_QUEUE_UNIT_SIZE
    queue_offset = (file.start_offset + begin) // layout.CONSUME_QUEUE_UNIT_SIZE
    data = file.read(begin, layout.CONSUME_QUEUE_UNIT_SIZE).tobytes()
    drawing = Drawing(f"queue unit {queue_offset} of {topic}/{queue_id}, byte {begin} of {file.path}", begin, position)
    if len(data) < layout.CONSUME_QUEUE_UNIT_SIZE:
        drawing.wrong("the file ends in the middle of the unit")
        return drawing
    physical_offset, size, code = layout.CONSUME_QUEUE_UNIT_STRUCT.unpack(data)
    meanings = {}
    if not any(data):
        drawing.below("unwritten: the queue ends here or earlier")
    elif (physical_offset, size) == (0, layout.BLANK_UNIT_SIZE):
        drawing.below("a blank unit: it precedes the first message of a queue whose older messages are deleted")
    elif code == layout.HOLE_TAGS_CODE:
        drawing.below("a hole: its record was damaged and moved to quarantine; pulls skip it")
        _record_values(drawing, files, physical_offset, size)
    elif (values := _record_values(drawing, files, physical_offset, size)) is not None:
        _compare(drawing, values, topic, queue_id, queue_offset)
        meanings["tags_code"] = code_meaning(code, topic, values)
    drawing.fields("CONSUME_QUEUE_UNIT", data, meanings)
    return drawing


def _record_values(drawing: Drawing, files: StoreFiles, physical_offset: int, size: int | None) -> dict[str, Any] | None:
    """Return the fields of the record that a unit or entry points at; draw a line if there is no valid record."""
    if physical_offset < files.log.min_offset:
        drawing.below(f"the record is deleted: retention has deleted the log up to {files.log.min_offset}")
        return None
    reason = why_invalid(files.log, physical_offset)
    if reason:
        drawing.wrong(f"there is no valid record at physical offset {physical_offset}: {reason}")
        return None
    values = {field.name: field.value for field in parsed(layout.RECORD, bytes(record_bytes(files.log, physical_offset)))}
    if size is not None and values["total_size"] != size:
        drawing.wrong(f"the record has {values['total_size']} bytes")
    return values


def _compare(drawing: Drawing, values: dict[str, Any], topic: str, queue_id: str, queue_offset: int) -> None:
    found = (values["topic"].decode("utf-8", "replace"), str(values["queue_id"]), values["queue_offset"])
    drawing.below(f"the record: {found[0]}/{found[1]} @ {found[2]}, stored {time_text(values['store_timestamp_ms'])}")
    if found != (topic, queue_id, queue_offset) and INNER_MULTI_DISPATCH.encode() not in values["properties"]:
        drawing.wrong(f"that is another record than this unit's: {topic}/{queue_id} @ {queue_offset}")


def _ext(file: RowFile, position: int) -> Drawing:
    """Draw a unit of consumequeue_ext. It is found by the sizes of the units before it, from the beginning of the file."""
    data = _bytes(file.path, 0, position + layout.CONSUME_QUEUE_EXT_SIZE_MAX)
    begin = 0
    while begin + 2 <= len(data):
        size = int.from_bytes(data[begin : begin + 2], "big", signed=True)
        if size < layout.CONSUME_QUEUE_EXT_FIXED_SIZE or begin + size > position:
            break
        begin += size
    title = f"unit of consumequeue_ext, address {file.start_offset + begin - (1 << 63)}, byte {begin} of {file.path}"
    return _fields(title, begin, position, "CONSUME_QUEUE_EXT_UNIT", data[begin:])


def _fields(title: str, begin: int, position: int, name: str, data: bytes) -> Drawing:
    """Draw the fields of `layout.NAME`."""
    drawing = Drawing(title, begin, position)
    drawing.fields(name, data)
    return drawing


def _bytes(path: str, begin: int, size: int) -> bytes:
    return RowFile(path, 0, begin + size).read(begin, size).tobytes()


# --- index ------------------------------------------------------------------------------------------------------------


def _index(files: StoreFiles, file: RowFile, position: int) -> Drawing:
    path = file.path
    try:
        facts = index_file(file)
    except DamagedFileError as error:
        raise PlaceError(str(error)) from None
    if position < layout.INDEX_HEADER_SIZE:
        data = file.read(0, layout.INDEX_HEADER_SIZE).tobytes()
        drawing = _fields(f"header of index file {path}", 0, position, "INDEX_HEADER", data)
        drawing.below(f"{facts.slot_count} slots from byte {layout.INDEX_HEADER_SIZE} on")
        drawing.below(f"room for {facts.entry_count_max} entries from byte {facts.entries_start} on")
        return drawing
    if position < facts.entries_start:
        slot = (position - layout.INDEX_HEADER_SIZE) // layout.INDEX_SLOT_SIZE
        begin = layout.INDEX_HEADER_SIZE + slot * layout.INDEX_SLOT_SIZE
        drawing = Drawing(f"slot {slot} of index file {path}, byte {begin}", begin, position)
        number = drawing.fields("INDEX_SLOT", file.read(begin, layout.INDEX_SLOT_SIZE).tobytes())["entry_number"]
        if number:
            drawing.below(f"entry {number} is at byte {facts.entry_position(number)}")
        return drawing
    number = (position - facts.entries_start) // layout.INDEX_ENTRY_SIZE
    begin = facts.entry_position(number)
    drawing = Drawing(f"entry {number} of index file {path}, byte {begin}", begin, position)
    data = file.read(begin, layout.INDEX_ENTRY_SIZE).tobytes()
    key_hash, physical_offset, time_diff_s, _ = layout.INDEX_ENTRY_STRUCT.unpack(data)
    meanings = {
        "key_hash": f"|String.hashCode| of topic#key; slot {key_hash % facts.slot_count}",
        "time_diff_s": f"after the file's begin: {time_text(facts.header.begin_timestamp_ms + 1000 * time_diff_s)}",
    }
    drawing.fields("INDEX_ENTRY", data, meanings)
    if 0 < number < facts.header.index_count:
        _tell_keys(drawing, files, physical_offset)
    else:
        drawing.below("entry 0 is never used" if number == 0 else "unwritten: the file's entries end earlier")
    return drawing


def _tell_keys(drawing: Drawing, files: StoreFiles, physical_offset: int) -> None:
    values = _record_values(drawing, files, physical_offset, None)
    if values is not None:
        keys = sorted(record_keys(decode_properties(values["properties"])))
        topic = values["topic"].decode("utf-8", "replace")
        drawing.below(f"the record: {topic}/{values['queue_id']} @ {values['queue_offset']}, keys: {', '.join(keys)}")


# --- timers -----------------------------------------------------------------------------------------------------------


def _timer_unit(path: str, start: int, position: int) -> Drawing:
    begin = position - position % layout.TIMER_LOG_UNIT_SIZE
    drawing = Drawing(f"unit at byte {start + begin} of the timer log, byte {begin} of {path}", begin, position)
    data = _bytes(path, begin, layout.TIMER_LOG_UNIT_SIZE)
    if len(data) < layout.TIMER_LOG_UNIT_SIZE:
        drawing.fields("TIMER_LOG_BLANK", data)
        return drawing
    values = drawing.fields("TIMER_LOG_UNIT", data)
    if values["size"] == layout.TIMER_LOG_UNIT_SIZE:
        drawing.below(f"it belongs to the slot of {time_text(values['write_time_ms'] + values['delay_ms'])}")
    return drawing


def _timer_slot(path: str, position: int) -> Drawing:
    begin = position - position % layout.TIMER_WHEEL_SLOT_SIZE
    title = f"slot {begin // layout.TIMER_WHEEL_SLOT_SIZE} of {path}, byte {begin}"
    return _fields(title, begin, position, "TIMER_WHEEL_SLOT", _bytes(path, begin, layout.TIMER_WHEEL_SLOT_SIZE))


def _timer_checkpoint(path: str, position: int) -> Drawing:
    name, begin = "TIMER_CHECKPOINT", 0
    if position >= layout.TIMER_MARK_POSITION:
        name, begin = "TIMER_MARK", layout.TIMER_MARK_POSITION
    elif position >= layout.TIMER_CHECKPOINT_SIZE:
        name, begin = "TIMER_CHECKPOINT_SEAL", layout.TIMER_CHECKPOINT_SIZE
    title = f"{'live mark of ' if name == 'TIMER_MARK' else ''}{path}, byte {begin}"
    return _fields(title, begin, position, name, _bytes(path, begin, 1 << 12))


# --- checkpoint -------------------------------------------------------------------------------------------------------


def _checkpoint(path: str, position: int) -> Drawing:
    data = _bytes(path, 0, 1 << 20)
    drawing = Drawing(f"checkpoint {path}", 0, position)
    drawing.fields("CHECKPOINT", data)
    if len(data) != layout.CHECKPOINT_FILE_SIZE:
        drawing.wrong(f"the file has {len(data)} bytes instead of {layout.CHECKPOINT_FILE_SIZE}")
    return drawing


_SMALL: Final = {"checkpoint": _checkpoint, "timerwheel": _timer_slot, "timercheck": _timer_checkpoint}
