"""Generator for `Layout.java`: byte positions for the Java code, from the declarations in `store/format/layout`."""

from typing import Final

from pocketmq.store.format import layout
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT, RECORD_FIXED, field_position
from pocketmq.store.format.message import COMPRESSED_FLAG, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from pocketmq.store.format.record import CRC_MASK, SECTOR_SIZE

# In the folder of sources, and in the jar.
PATH: Final = "pocketmq/spark/files/Layout.java"
_CONSTANTS: Final = (
    *("MESSAGE_MAGIC_CODE", "MESSAGE_MAGIC_CODE_V2", "BLANK_MAGIC_CODE", "BORNHOST_V6_FLAG", "STOREHOSTADDRESS_V6_FLAG"),
    *("HOST_SIZE", "HOST_V6_SIZE", "RECORD_FIXED_SIZE", "RECORD_SIZE_MIN", "BLANK_SIZE", "CONSUME_QUEUE_UNIT_SIZE"),
    "HOLE_TAGS_CODE",
)
_FIELDS: Final = (
    *("magic_code", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp_ms"),
    *("born_host", "store_timestamp_ms", "store_host", "reconsume_times", "prepared_transaction_offset"),
)
_HEAD: Final = """\
package pocketmq.spark.files;

/**
 * Positions, sizes and marks of a store's files; positions count from a record's or unit's first byte, with IPv4 hosts.
 *
 * <p>Generated from store/format/layout.py when the jar is built.
 */
public final class Layout {
"""


def source() -> str:
    """Return the text of Layout.java."""
    constants = {name: getattr(layout, name) for name in _CONSTANTS}
    constants |= {"COMPRESSED_FLAG": COMPRESSED_FLAG, "CRC_MASK": CRC_MASK, "SECTOR_SIZE": SECTOR_SIZE}
    constants |= {"INNER_BATCH_FLAG": INNER_BATCH_FLAG, "NEED_UNWRAP_FLAG": NEED_UNWRAP_FLAG}
    for field in _FIELDS:
        constants[f"{field.removesuffix('_ms').upper()}_POSITION"] = field_position(RECORD_FIXED, field)
    for field in ("physical_offset", "size", "tags_code"):
        constants[f"UNIT_{field.upper()}_POSITION"] = field_position(CONSUME_QUEUE_UNIT, field)
    lines = [f"    public static final {_declared(name, value)};" for name, value in constants.items()]
    return _HEAD + "\n".join(lines) + "\n\n    private Layout() {}\n}\n"


def _declared(name: str, value: int) -> str:
    return f"int {name} = {value}" if -(2**31) <= value < 2**31 else f"long {name} = {value}L"
