"""Conversion of records to JSON objects, for `dump` and `export`, and back, for `import`.

Names are those of Java's MessageExt. The key of a body that is not shown as text names its form: `bodyBase64`, `bodyHex`.
Properties are a map; if a map cannot represent their stored form (a duplicate name, an empty value, bytes that are not
UTF-8), the stored bytes are added as `propertiesBase64`.
"""

import base64
import binascii
import importlib
import ipaddress
import zlib
from typing import Any, Final

from pocketmq.store.format.host import host_text
from pocketmq.store.format.message import COMPRESSED_FLAG, Message
from pocketmq.store.format.properties import PROPERTY_SEPARATOR, decode_properties, encode_properties
from pocketmq.store.format.record import Record
from pocketmq.store_tools.files.value_text import COMPRESSION_MASK, COMPRESSIONS, time_text

# 5.x: checksum of the bytes of the record, always the last property; it is wrong for a copy of the message.
_CRC_PROPERTY: Final = b"__CRC32#\x01"
_CRC_SIZE: Final = 20


class DocumentError(ValueError):
    """Raised for a JSON object that is not a valid record; the text names the key."""


def _packed_host(text: Any, key: str) -> bytes:
    address, _, port = str(text).rpartition(":")
    try:
        return ipaddress.ip_address(address.strip("[]")).packed + int(port).to_bytes(4, "big", signed=True)
    except (ValueError, OverflowError):
        raise DocumentError(f"{key} is {text!r}, not an address such as 10.0.0.7:10911 or [::1]:10911") from None


def message_id(record: Record) -> str:
    """Return the offset message id: store host and physical offset in hex (MessageDecoder.createMessageId)."""
    return (record.store_host + record.physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def plain_body(record: Record) -> tuple[bytes, str]:
    """Return (uncompressed body, "") or (body as stored, why it could not be uncompressed)."""
    if not record.sys_flag & COMPRESSED_FLAG:
        return record.body, ""
    kind = COMPRESSIONS.get(record.sys_flag & COMPRESSION_MASK, "an unknown algorithm")
    try:
        if kind == "ZLIB":
            return zlib.decompress(record.body), ""
        if kind == "LZ4":
            return bytes(importlib.import_module("lz4.frame").decompress(record.body)), ""
        if kind == "ZSTD":
            return bytes(importlib.import_module("zstandard").ZstdDecompressor().decompressobj().decompress(record.body)), ""
    except ModuleNotFoundError as error:
        return record.body, f"compressed with {kind}: pip install {'lz4' if 'lz4' in str(error) else 'zstandard'}"
    except Exception as error:  # each library raises its own exceptions
        return record.body, f"cannot be uncompressed with {kind}: {error}"
    return record.body, f"compressed with {kind}"


def body_fields(body: bytes, form: str) -> dict[str, Any]:
    """Return the body's keys in one of the forms none, text, base64 and hex."""
    if form == "none":
        return {"bodySize": len(body)}
    if form == "hex":
        return {"bodyHex": body.hex()}
    if form == "text":
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"bodyBase64": base64.b64encode(body).decode()}


def as_document(record: Record, form: str = "text", plain: bool = False) -> dict[str, Any]:
    """Return a record as the JSON object of `dump`."""
    body, note = plain_body(record) if plain else (record.body, "")
    document: dict[str, Any] = {
        "topic": str(record.topic, "utf-8", "replace"),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "msgId": message_id(record),
        "storeTime": time_text(record.store_timestamp_ms),
        "storeTimestamp": record.store_timestamp_ms,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "storeSize": record.total_size,
        "bodyCrc": record.body_crc,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": decode_properties(record.properties),
        **body_fields(body, form),
    }
    if note:
        document["bodyNote"] = note
    return document


def as_export(record: Record) -> dict[str, Any]:
    """Return a record as the JSON object of `export`: everything that a copy of its message needs, and its position."""
    stored = record.properties
    if stored[-_CRC_SIZE:].startswith(_CRC_PROPERTY):
        stored = stored[:-_CRC_SIZE]
    properties = decode_properties(stored)
    document = as_document(record, "base64")
    del document["storeTime"], document["msgId"], document["storeSize"]
    document["properties"] = properties
    # 5.x ends the string with a separator, 4.9 does not.
    is_closed = stored.endswith(PROPERTY_SEPARATOR.encode())
    text = encode_properties(properties) + (PROPERTY_SEPARATOR if is_closed else "")
    if text.encode("utf-8", "surrogatepass") != stored:
        document["propertiesBase64"] = base64.b64encode(stored).decode()
    elif is_closed:
        document["propertiesClosed"] = True
    return document


def _value(document: dict[str, Any], key: str, kind: type, default: Any = None) -> Any:
    value = document.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        raise DocumentError(f"{key} is missing" if value is None else f"{key} is {value!r}, not {_KINDS[kind]}")
    return value


_KINDS: Final = {int: "a whole number", str: "text", dict: "an object", bool: "true or false"}


def _number(document: dict[str, Any], key: str, bits: int, default: int | None = None) -> int:
    value: int = _value(document, key, int, default)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise DocumentError(f"{key} is {value}, which does not fit {bits} bits")
    return value


def _bytes(document: dict[str, Any], key: str) -> bytes:
    text = _value(document, key, str)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DocumentError(f"{key} is not base64: {error}") from None


def message_of(document: dict[str, Any]) -> tuple[Message, int]:
    """Return (message, store time in ms) of an exported record. Raises DocumentError."""
    properties = _value(document, "properties", dict, {})
    if not all(isinstance(value, str) for value in properties.values()):
        raise DocumentError("properties must be an object whose values are text")
    if "propertiesBase64" in document:
        stored = _bytes(document, "propertiesBase64")
    else:
        is_closed = _value(document, "propertiesClosed", bool, False)
        stored = (encode_properties(properties) + (PROPERTY_SEPARATOR if is_closed else "")).encode("utf-8", "surrogatepass")
    body = _value(document, "body", str).encode() if "body" in document else _bytes(document, "bodyBase64")
    message = Message(
        _value(document, "topic", str),
        _number(document, "queueId", 32),
        body,
        _packed_host(_value(document, "bornHost", str), "bornHost"),
        _packed_host(_value(document, "storeHost", str), "storeHost"),
        flag=_number(document, "flag", 32, 0),
        sys_flag=_number(document, "sysFlag", 32, 0),
        born_timestamp_ms=_number(document, "bornTimestamp", 64),
        reconsume_times=_number(document, "reconsumeTimes", 32, 0),
        prepared_transaction_offset=_number(document, "preparedTransactionOffset", 64, 0),
        properties=decode_properties(stored),
        properties_bytes=stored,
    )
    return message, _number(document, "storeTimestamp", 64)
