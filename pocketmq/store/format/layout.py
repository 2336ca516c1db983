"""Declarations of all units in the store's files.

They use `construct` and are read by documentation and tests. As `construct` is slow, the code uses `struct` formats and
numpy dtypes that are derived from the declarations here, with assertions on their sizes. Everything is big-endian.
"""

import struct
from functools import lru_cache
from typing import Any, Final

import numpy as np
from construct import (
    Bytes,
    BytesInteger,
    Construct,
    Container,
    FormatField,
    IfThenElse,
    Int8ub,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    Renamed,
    Struct,
    this,
)

MESSAGE_MAGIC_CODE: Final = -626843481  # 0xDAA320A7
MESSAGE_MAGIC_CODE_V2: Final = -626843477  # 0xDAA320AB, 5.x: the topic's length takes two bytes
BLANK_MAGIC_CODE: Final = -875286124  # 0xCBD43194

BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20
HOST_SIZE: Final = 8  # address, then the port in 4 bytes
HOST_V6_SIZE: Final = 20

# --- CommitLog ------------------------------------------------------------------------------------------------------

RECORD_FIXED = Struct(
    "total_size" / Int32sb,
    "magic_code" / Int32sb,
    "body_crc" / Int32sb,  # CRC-32 of the stored body & 0x7FFFFFFF
    "queue_id" / Int32sb,
    "flag" / Int32sb,
    "queue_offset" / Int64sb,
    "physical_offset" / Int64sb,
    "sys_flag" / Int32sb,
    "born_timestamp_ms" / Int64sb,
    "born_host" / IfThenElse(this.sys_flag & BORNHOST_V6_FLAG, Bytes(HOST_V6_SIZE), Bytes(HOST_SIZE)),
    "store_timestamp_ms" / Int64sb,
    "store_host" / IfThenElse(this.sys_flag & STOREHOSTADDRESS_V6_FLAG, Bytes(HOST_V6_SIZE), Bytes(HOST_SIZE)),
    "reconsume_times" / Int32sb,
    "prepared_transaction_offset" / Int64sb,
    "body_size" / Int32sb,
)
RECORD = RECORD_FIXED + Struct(
    "body" / Bytes(this.body_size),
    "topic_size" / IfThenElse(this.magic_code == MESSAGE_MAGIC_CODE_V2, Int16ub, Int8ub),
    "topic" / Bytes(this.topic_size),
    "properties_size" / Int16ub,
    "properties" / Bytes(this.properties_size),
)
# Last entry of a file: its size covers the rest of the file, of which only these 8 bytes are written.
BLANK = Struct("size" / Int32sb, "magic_code" / Int32sb)

# --- replication -----------------------------------------------------------------------------------------------------

# From the slave: the end of its log, which requests the bytes after it and acknowledges those before it.
REPLICA_REPORT = Struct("max_physical_offset" / Int64sb)
# From the master, followed by `body_size` bytes of the log; without any it is a heartbeat.
REPLICA_TRANSFER = Struct("physical_offset" / Int64sb, "body_size" / Int32sb)

# --- ConsumeQueue ---------------------------------------------------------------------------------------------------

# Tags code of a unit whose record is lost: no filter matches it, and pulls skip the unit.
HOLE_TAGS_CODE: Final = 2**63 - 1
# Size in the units that precede a queue's first record; they point to physical offset 0.
BLANK_UNIT_SIZE: Final = 0x7FFFFFFF
# A tags code up to this value is instead an address in consumequeue_ext, counted from the smallest long (Java:
# ConsumeQueueExt.isExtAddr).
EXT_ADDRESS_MAX: Final = -(2**31) - 1
EXT_ADDRESS_BASE: Final = -(2**63)

CONSUME_QUEUE_UNIT = Struct("physical_offset" / Int64sb, "size" / Int32sb, "tags_code" / Int64sb)

# --- ConsumeQueueExt ------------------------------------------------------------------------------------------------

CONSUME_QUEUE_EXT_FIXED = Struct(
    "size" / Int16sb,  # of the whole unit; -1 ends a file
    "tags_code" / Int64sb,
    "store_timestamp_ms" / Int64sb,
    "bitmap_size" / Int16sb,
)
CONSUME_QUEUE_EXT_UNIT = CONSUME_QUEUE_EXT_FIXED + Struct("bitmap" / Bytes(this.bitmap_size))

# --- IndexFile ------------------------------------------------------------------------------------------------------

INDEX_HEADER = Struct(
    "begin_timestamp_ms" / Int64sb,
    "end_timestamp_ms" / Int64sb,
    "begin_physical_offset" / Int64sb,
    "end_physical_offset" / Int64sb,
    "hash_slot_count" / Int32sb,
    "index_count" / Int32sb,  # 1 in a file without an entry: entry 0 is never used
)
INDEX_SLOT = Struct("entry_number" / Int32sb)
INDEX_ENTRY = Struct(
    "key_hash" / Int32sb, "physical_offset" / Int64sb, "time_diff_s" / Int32sb, "previous_entry_number" / Int32sb
)

# --- checkpoint -----------------------------------------------------------------------------------------------------

CHECKPOINT_FILE_SIZE: Final = 4096
CHECKPOINT = Struct(
    "physic_msg_timestamp_ms" / Int64sb,
    "logics_msg_timestamp_ms" / Int64sb,
    "index_msg_timestamp_ms" / Int64sb,
    "master_flushed_offset" / Int64sb,  # this and the next: 5.x only, zero in 4.9.4
    "confirm_physical_offset" / Int64sb,
)
# PocketMQ's own, in the same disk sector: a copy of the five numbers, and their seal (a checksum).
CHECKPOINT_SEAL_POSITION: Final = 256
CHECKPOINT_SEAL = CHECKPOINT + Struct("seal" / Int64sb)


# --- timer wheel (5.x) ----------------------------------------------------------------------------------------------

TIMER_MAGIC_DEFAULT: Final = 1
TIMER_MAGIC_ROLL: Final = 2  # the unit is in an intermediate slot: its message is due later
TIMER_MAGIC_DELETE: Final = 4  # cancels messages of its slot
TIMER_MAGIC_BITS: Final = 0xF  # a unit with any other bit is invalid

TIMER_WHEEL_SLOT = Struct(
    "time" / Int64sb,  # in units of the precision
    "first_position" / Int64sb,
    "last_position" / Int64sb,
    "message_count" / Int32sb,  # less the units that cancel messages
    "magic" / Int32sb,
)
TIMER_LOG_UNIT = Struct(
    "size" / Int32sb,
    "previous_position" / Int64sb,  # of the same slot, -1 none
    "magic" / Int32sb,
    "write_time_ms" / Int64sb,
    "delay_ms" / Int32sb,  # write time + delay: the time whose slot the unit is in
    "physical_offset" / Int64sb,
    "record_size" / Int32sb,
    "topic_hash" / Int32sb,
    "rolled_due_ms" / Int64sb,  # Apache: reserved, 0. PocketMQ, with ROLL: when the message is due
)
# Blank at the end of a timer-log file; its size is that of the whole rest of the file.
TIMER_LOG_BLANK = Struct("size" / Int32sb, "zero" / Int64sb, "magic" / Int32sb)

TIMER_CHECKPOINT_FILE_SIZE: Final = 4096
TIMER_CHECKPOINT = Struct(
    "read_time_ms" / Int64sb,
    "log_end" / Int64sb,
    "queue_offset" / Int64sb,
    "master_queue_offset" / Int64sb,
    "state_version" / Int64sb,
    "timestamp_ms" / Int64sb,
    "counter" / Int64sb,
)
# PocketMQ's own, after the bytes that Apache reads. A valid seal (checksum) shows that PocketMQ wrote the file last. The
# mark, in a separate sector and with its own seal, was written by earlier versions; it is in config/timermark now.
TIMER_CHECKPOINT_SEAL = Struct("delivered_before_ms" / Int64sb, "delivered_before_offset" / Int64sb, "seal" / Int64sb)
TIMER_MARK_POSITION: Final = 512
_TIMER_PROGRESS = Struct(
    "read_time_ms" / Int64sb,
    "log_end" / Int64sb,
    "queue_offset" / Int64sb,
    "delivered_before_ms" / Int64sb,
    "delivered_before_offset" / Int64sb,
)
TIMER_MARK = Struct("boot" / Int64sb) + _TIMER_PROGRESS + Struct("seal" / Int64sb)

# --- PocketMQ's marks: config/levelmark, config/timermark -----------------------------------------------------------

MARK_SLOT_SIZE: Final = 4096
MARK_MAGIC: Final = 0x504D514D  # "PMQM"
MARK_HEADER = Struct(
    "seal" / Int64sb,  # CRC-32 of all that follows
    "magic" / Int32sb,
    "size" / Int32sb,  # of what follows this header
    "sequence" / Int64sb,  # the newer of two slots has the greater one
    "boot" / Int64sb,  # CRC-32 of `Disk.boot_mark`
)
LEVEL_MARK = Struct(
    "level" / Int32sb,
    "next_offset" / Int64sb,  # of the level's queue: everything before is delivered
    "physical_offset" / Int64sb,  # of the record before next_offset: shows that it is the same queue
)
TIMER_STATE = _TIMER_PROGRESS + Struct(
    "log_begin" / Int64sb,  # no file of the timer log from here on may be missing
    "log_sum" / Int64sb,  # CRC-32 of the last timer log file up to log_end; -1: not known
    "wheel_sum" / Int64sb,  # CRC-32 of timerwheel; -1: not from a clean stop
)


def _fields(declaration: Construct, sys_flag: int) -> list[tuple[str, str]]:
    """Return (name, struct code without byte order) of each field; `sys_flag` decides conditional fields."""
    fields = []
    for subcon in declaration.subcons:
        field = subcon.subcon if isinstance(subcon, Renamed) else subcon
        if isinstance(field, IfThenElse):
            field = field.thensubcon if field.condfunc(Container(sys_flag=sys_flag)) else field.elsesubcon
        if isinstance(field, FormatField):
            byte_order, code = field.fmtstr
            assert byte_order == ">", f"{subcon.name} is not big-endian"
        else:
            assert isinstance(field, Bytes) and not isinstance(field, BytesInteger), f"{subcon.name} has no fixed size"
            code = f"{field.length}s"
        fields.append((str(subcon.name), code))
    return fields


def struct_of(declaration: Construct, sys_flag: int = 0) -> struct.Struct:
    """Return the `struct.Struct` that packs the fields of a declaration in their order."""
    return struct.Struct(">" + "".join(code for _, code in _fields(declaration, sys_flag)))


def dtype_of(declaration: Construct, sys_flag: int = 0) -> np.dtype[Any]:
    """Return the packed numpy dtype with the fields of a declaration."""
    # In struct an `l` or `L` after `>` has 4 bytes; numpy would take 8.
    codes = {"l": "i4", "L": "u4", "q": "i8", "Q": "u8", "h": "i2", "H": "u2", "b": "i1", "B": "u1"}
    return np.dtype(
        [
            (name, "V" + code[:-1] if code.endswith("s") else ">" + codes[code])
            for name, code in _fields(declaration, sys_flag)
        ]
    )


@lru_cache
def field_position(declaration: Construct, name: str, sys_flag: int = 0) -> int:
    """Return the byte position of a field within its unit."""
    fields = dtype_of(declaration, sys_flag).fields
    assert fields is not None
    return fields[name][1]


RECORD_FIXED_STRUCTS: Final = {
    host_flags: struct_of(RECORD_FIXED, host_flags)
    for host_flags in (0, BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG, BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG)
}
RECORD_FIXED_SIZE: Final = RECORD_FIXED_STRUCTS[0].size
assert [fixed.size for fixed in RECORD_FIXED_STRUCTS.values()] == [88, 100, 100, 112]
MAGIC_CODE_POSITION: Final = field_position(RECORD_FIXED, "magic_code")
QUEUE_OFFSET_POSITION: Final = field_position(RECORD_FIXED, "queue_offset")
PHYSICAL_OFFSET_POSITION: Final = field_position(RECORD_FIXED, "physical_offset")
SYS_FLAG_POSITION: Final = field_position(RECORD_FIXED, "sys_flag")
STORE_TIMESTAMP_POSITION: Final = field_position(RECORD_FIXED, "store_timestamp_ms")  # +12 when the born host is IPv6
# Smallest record: fixed part, no body, topic length, properties length.
RECORD_SIZE_MIN: Final = RECORD_FIXED_SIZE + 1 + 2

BLANK_STRUCT: Final = struct_of(BLANK)
BLANK_SIZE: Final = BLANK_STRUCT.size

REPLICA_REPORT_STRUCT: Final = struct_of(REPLICA_REPORT)
REPLICA_TRANSFER_STRUCT: Final = struct_of(REPLICA_TRANSFER)

CONSUME_QUEUE_UNIT_STRUCT: Final = struct_of(CONSUME_QUEUE_UNIT)
CONSUME_QUEUE_UNIT_DTYPE: Final = dtype_of(CONSUME_QUEUE_UNIT)
CONSUME_QUEUE_UNIT_SIZE: Final = CONSUME_QUEUE_UNIT_STRUCT.size
CONSUME_QUEUE_EXT_FIXED_STRUCT: Final = struct_of(CONSUME_QUEUE_EXT_FIXED)
CONSUME_QUEUE_EXT_FIXED_SIZE: Final = CONSUME_QUEUE_EXT_FIXED_STRUCT.size
CONSUME_QUEUE_EXT_SIZE_MAX: Final = 32767

INDEX_HEADER_STRUCT: Final = struct_of(INDEX_HEADER)
INDEX_HEADER_SIZE: Final = INDEX_HEADER_STRUCT.size
INDEX_SLOT_STRUCT: Final = struct_of(INDEX_SLOT)
INDEX_SLOT_SIZE: Final = INDEX_SLOT_STRUCT.size
INDEX_ENTRY_STRUCT: Final = struct_of(INDEX_ENTRY)
INDEX_ENTRY_DTYPE: Final = dtype_of(INDEX_ENTRY)
INDEX_ENTRY_SIZE: Final = INDEX_ENTRY_STRUCT.size

CHECKPOINT_STRUCT: Final = struct_of(CHECKPOINT)
CHECKPOINT_SIZE: Final = CHECKPOINT_STRUCT.size
CHECKPOINT_SEAL_STRUCT: Final = struct_of(CHECKPOINT_SEAL)

TIMER_WHEEL_SLOT_STRUCT: Final = struct_of(TIMER_WHEEL_SLOT)
TIMER_WHEEL_SLOT_DTYPE: Final = dtype_of(TIMER_WHEEL_SLOT)
TIMER_WHEEL_SLOT_SIZE: Final = TIMER_WHEEL_SLOT_STRUCT.size
TIMER_LOG_UNIT_STRUCT: Final = struct_of(TIMER_LOG_UNIT)
TIMER_LOG_UNIT_DTYPE: Final = dtype_of(TIMER_LOG_UNIT)
TIMER_LOG_UNIT_SIZE: Final = TIMER_LOG_UNIT_STRUCT.size
TIMER_LOG_BLANK_STRUCT: Final = struct_of(TIMER_LOG_BLANK)
TIMER_LOG_BLANK_SIZE: Final = TIMER_LOG_BLANK_STRUCT.size
TIMER_CHECKPOINT_STRUCT: Final = struct_of(TIMER_CHECKPOINT)
TIMER_CHECKPOINT_SIZE: Final = TIMER_CHECKPOINT_STRUCT.size
TIMER_CHECKPOINT_SEAL_STRUCT: Final = struct_of(TIMER_CHECKPOINT_SEAL)
TIMER_MARK_STRUCT: Final = struct_of(TIMER_MARK)
MARK_HEADER_STRUCT: Final = struct_of(MARK_HEADER)
LEVEL_MARK_STRUCT: Final = struct_of(LEVEL_MARK)
TIMER_STATE_STRUCT: Final = struct_of(TIMER_STATE)

assert (BLANK_SIZE, REPLICA_REPORT_STRUCT.size, REPLICA_TRANSFER_STRUCT.size) == (8, 8, 12)
assert (CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_EXT_FIXED_SIZE, CHECKPOINT_SIZE) == (20, 20, 40)
assert (INDEX_HEADER_SIZE, INDEX_SLOT_SIZE, INDEX_ENTRY_SIZE) == (40, 4, 20)
assert (TIMER_WHEEL_SLOT_SIZE, TIMER_LOG_UNIT_SIZE, TIMER_LOG_BLANK_SIZE, TIMER_CHECKPOINT_SIZE) == (32, 52, 16, 56)


# One call per run of units instead of one per unit. Few are cached: a struct of 1000 units takes 96 KB.
@lru_cache(maxsize=128)
def unit_run_struct(count: int) -> struct.Struct:
    """Return the struct of `count` queue units as one flat tuple: physical offset, size, tags code, physical offset, ...

    Slices with a step of 3 pick the columns.
    """
    return struct.Struct(">" + CONSUME_QUEUE_UNIT_STRUCT.format[1:] * count)
