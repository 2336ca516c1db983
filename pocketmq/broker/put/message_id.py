"""offsetMsgId: the place of a message in the log, as text that clients pass on.

Upper-case hex of the store host's address (4 or 16 bytes), its port (i32) and the physical offset (i64).
"""

from collections.abc import Callable


def message_id_template(store_host: bytes) -> Callable[[int], str]:
    """Return the function from a physical offset on `store_host` (packed address and port) to its offsetMsgId."""
    return (store_host.hex().upper() + "%016X").__mod__


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offsetMsgId of one message."""
    return message_id_template(store_host)(physical_offset)


def decode_message_id(message_id: str) -> tuple[bytes, int]:
    """Return (packed store host, physical offset). Raises ValueError, which names the id."""
    if len(message_id) not in (32, 56):
        raise ValueError(f"message id {message_id!r} has {len(message_id)} characters, an offsetMsgId has 32 or 56")
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        raise ValueError(f"message id {message_id!r} is not hexadecimal") from None
    if 2 * len(data) != len(message_id):  # fromhex skips blanks
        raise ValueError(f"message id {message_id!r} is not hexadecimal")
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)
