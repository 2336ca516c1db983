"""Message bodies: decompressed, as text, as JSON text (`typed_bodies`: as typed values).

Clients compress bodies larger than 4 KiB and set a flag in sysFlag; the broker stores them unchanged. Uncompressed bodies,
usually the majority, are handled in bulk; compressed ones one by one, since each is a separate stream.

Decompressed sizes are limited, per body and per batch: a few bytes can expand to gigabytes.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from isal import isal_zlib
from isal.igzip_lib import IsalError

from pocketmq.spark_analytics.decoding.body_forms import JSON, TEXT_TYPES, BodyForm
from pocketmq.spark_analytics.decoding.columns import Column, Records
from pocketmq.spark_analytics.decoding.properties import text
from pocketmq.store.format.message import COMPRESSED_FLAG
from pocketmq.store.format.record_chain import Positions

# Clients limit bodies to 4 MiB before compression, unless maxMessageSize was raised.
BODY_SIZE_MAX: Final = 64 << 20
# A batch is closed once it holds this many decompressed bytes.
PORTION_SIZE: Final = 64 << 20
COMPRESSION_MASK: Final = 0x700
LZ4_FLAG: Final = 0x100
ZSTD_FLAG: Final = 0x200
_ZSTD_STEP: Final = 1024  # expands to 32 MiB at most


class BodyError(ValueError):
    """A body that cannot be decompressed by the method in its sysFlag, or that does not match its schema."""


def portions(records: Records) -> Iterator[Records]:
    """Yield the same records with decompressed bodies (`Records.plain`), in one or more parts."""
    compressed = compressed_rows(records)
    first, size, plain = 0, 0, list[bytes | None]()
    begins, ends = records.body_begins[compressed].tolist(), records.body_ends[compressed].tolist()
    flags = records.fixed("sys_flag")[compressed].tolist()
    for row, begin, end, sys_flag in zip(compressed.tolist(), begins, ends, flags, strict=True):
        try:
            body = decompress(records.data[begin:end].tobytes(), sys_flag)
        except BodyError:
            body = None
        plain.append(body)
        size += len(body or b"")
        if size >= PORTION_SIZE:
            part = records.rows(slice(first, row + 1))
            part.plain = plain
            yield part
            first, size, plain = row + 1, 0, []
    if first < len(records):
        part = records.rows(slice(first, None))
        part.plain = plain
        yield part


def compressed_rows(records: Records) -> Positions:
    """Return the rows with a compressed body."""
    return np.flatnonzero((records.fixed("sys_flag") & COMPRESSED_FLAG) != 0)


def damaged_rows(records: Records) -> Positions:
    """Return the rows whose body could not be decompressed or decoded."""
    if records.typed is not None:
        return np.flatnonzero(records.typed.is_null())
    return compressed_rows(records)[[body is None for body in records.plain or ()]]


def without_damaged(records: Records) -> Records:
    """Return the records without those whose body could not be decompressed or decoded."""
    keep = np.ones(len(records), bool)
    keep[damaged_rows(records)] = False
    kept = records.rows(keep)
    if records.typed is not None:
        kept.typed = records.typed.filter(pa.array(keep))
        return kept
    kept.plain = [body for body in records.plain or () if body is not None]
    return kept


def decompress(body: bytes, sys_flag: int) -> bytes:
    """Return a stored body as it was sent. Raises BodyError, ImportError."""
    if not sys_flag & COMPRESSED_FLAG or not body:
        return body
    kind = sys_flag & COMPRESSION_MASK
    decompressor = {0: _zlib, 0x300: _zlib, LZ4_FLAG: _lz4, ZSTD_FLAG: _zstd}.get(kind)
    if decompressor is None:
        raise BodyError(f"sysFlag {sys_flag:#x} names an unknown compression type")
    return decompressor(body)


def _zlib(body: bytes) -> bytes:
    stream = isal_zlib.decompressobj()
    try:
        return _whole(stream.decompress(body, BODY_SIZE_MAX + 1), stream.eof)
    except IsalError as error:  # type: ignore[misc]
        raise BodyError(f"not a zlib stream: {error}") from None


def _lz4(body: bytes) -> bytes:
    try:
        import lz4.frame
    except ImportError:
        raise ImportError("a body is compressed by LZ4: pip install lz4, or read bodyAs=stored") from None
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        return _whole(stream.decompress(body, BODY_SIZE_MAX + 1), stream.eof)
    except RuntimeError as error:
        raise BodyError(f"not an LZ4 frame: {error}") from None


def _zstd(body: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise ImportError("a body is compressed by Zstandard: pip install zstandard, or read bodyAs=stored") from None
    stream = zstandard.ZstdDecompressor().decompressobj()
    plain = bytearray()
    try:
        for begin in range(0, len(body), _ZSTD_STEP):
            if not stream.eof and len(plain) <= BODY_SIZE_MAX:
                plain += stream.decompress(body[begin : begin + _ZSTD_STEP])
    except zstandard.ZstdError as error:
        raise BodyError(f"not a Zstandard frame: {error}") from None
    return _whole(bytes(plain), stream.eof)


def _whole(plain: bytes, is_at_end: bool) -> bytes:
    if len(plain) > BODY_SIZE_MAX:
        raise BodyError(f"it decompresses to more than {BODY_SIZE_MAX} bytes")
    if not is_at_end:
        raise BodyError("its compressed stream is truncated")
    return plain


# --- columns --------------------------------------------------------------------------------------------------------


def plain_bodies(records: Records) -> Any:
    """Return the decompressed bodies as an Arrow BinaryArray, null where decompression failed."""
    stored = records.bodies
    if not records.plain:
        return stored
    rows = np.arange(len(records))
    rows[compressed_rows(records)] = len(records) + np.arange(len(records.plain))
    return pa.concat_arrays([stored, pa.array(records.plain, pa.binary())]).take(pa.array(rows))


def _json_bodies(records: Records) -> Any:
    return pa.array([json_text(body) for body in plain_bodies(records).to_pylist()], pa.string())


def json_text(body: bytes | None) -> str | None:
    """Return a body as text if it is exactly one JSON value in UTF-8, nested less than some hundred levels; else None."""
    try:
        msgspec.json.decode(body or b"", type=msgspec.Raw)
        return str(body, "utf-8") if body else None
    except (ValueError, RecursionError):
        return None


def body_column(form: BodyForm) -> Column:
    """Return the column `body` in the form that the options ask for."""
    if form.arrow_type is not None:
        return Column("body", form.arrow_type, lambda records: records.typed)
    decoders: dict[str, Callable[[Records], Any]] = {
        "stored": lambda records: records.bodies,
        "plain": plain_bodies,
        "string": lambda records: text(plain_bodies(records)),
        "json": _json_bodies,
    }
    return Column("body", TEXT_TYPES.get(form.kind, pa.binary()), decoders[form.kind], is_nullable=form.kind == JSON)
