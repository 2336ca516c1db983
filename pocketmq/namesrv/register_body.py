"""Body of REGISTER_BROKER in its three forms: JSON, JSON of brokers older than 3.0.11, and compressed."""

import zlib
from typing import Any, Final

import msgspec

from pocketmq.namesrv.register_limits import SHOWN_SIZE_MAX
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, decode_body

V3_0_11: Final = 37
"""Version from which brokers send more than the topic table."""
INFLATED_SIZE_MAX: Final = 32 * 1024 * 1024
"""Maximum size in bytes of an inflated body: some 350,000 topics."""
_INFLATED_RATIO_MAX: Final = 100
"""Maximum inflated bytes per compressed byte. Topics with similar names reach some 20, zip bombs 1,000."""
_INFLATED_SIZE_MIN: Final = 64 * 1024
"""Size in bytes to which a body of any size may inflate."""
_INFLATED_STEP: Final = 64 * 1024
_COMPRESSED_STEP: Final = 4 * 1024


class RegisterBodyError(ValueError):
    """The body cannot be read."""


def decode_register_body(body: bytes, version: int, is_compressed: bool, topics_max: int) -> RegisterBrokerBody:
    """Decode a body sent by a broker of `version`; an empty one means no topics. Raises RegisterBodyError.

    `topics_max` is registerTopicsMax: a compressed body with more topics is refused.
    """
    try:
        if not body:
            return RegisterBrokerBody()
        if version < V3_0_11:
            return RegisterBrokerBody(decode_body(TopicConfigSerializeWrapper, body))
        return _inflated(body, topics_max) if is_compressed else decode_body(RegisterBrokerBody, body)
    except (ValueError, zlib.error, msgspec.DecodeError) as error:
        raise RegisterBodyError(f"body of the registration cannot be read: {error}") from None


def _inflated(body: bytes, topics_max: int) -> RegisterBrokerBody:
    """Decode a zlib stream of: DataVersion JSON, count, topics as text, filter servers JSON, each after its i32 length.

    The data that 5.x appends (queue mappings of static topics) is neither inflated nor read.
    """
    stream = _InflatedStream(body)
    version_json = stream.text()
    count = stream.i32()
    if count > topics_max:
        raise ValueError(f"{count} topics: registerTopicsMax={topics_max} is the limit")
    if count > len(body):
        raise ValueError(f"{len(body)} bytes cannot contain {count} topics")
    version = decode_body(DataVersion, version_json)
    topics: dict[str, TopicConfig] = {}
    for _ in range(count):
        config = _topic_config(stream.text().decode())
        topics[config.topic_name] = config
    wrapper = TopicConfigSerializeWrapper(topics, version)
    return RegisterBrokerBody(wrapper, msgspec.convert(fastjson.loads(stream.text()) or [], list[str]))


class _InflatedStream:
    """Reader of the fields of a zlib stream. Inflates only what is read, so that a refusal is cheap."""

    def __init__(self, compressed: bytes) -> None:
        self._compressed = compressed
        self._taken = 0  # bytes of `compressed` given to the inflater
        self._inflater = zlib.decompressobj()
        self._data = b""  # inflated; unread from `_position` on
        self._position = 0
        self._size = 0  # total number of inflated bytes
        self._size_max = min(INFLATED_SIZE_MAX, _INFLATED_SIZE_MIN + _INFLATED_RATIO_MAX * len(compressed))

    def i32(self) -> int:
        return int.from_bytes(self._read(4), "big", signed=True)

    def text(self) -> bytes:
        """Read a field that follows its length. Raises ValueError for an impossible length."""
        length = self.i32()
        if length < 0 or length > self._size_max:
            raise ValueError(f"length {length} of a field is not within 0 to {self._size_max}")
        return self._read(length)

    def _read(self, size: int) -> bytes:
        if len(self._data) - self._position < size:
            self._inflate(size)
        self._position += size
        return self._data[self._position - size : self._position]

    def _inflate(self, wanted: int) -> None:
        """Inflate until `wanted` bytes are unread. Raises ValueError if the stream ends or exceeds the size limit."""
        pieces = [self._data[self._position :]]
        have = len(pieces[0])
        while have < wanted:
            compressed = self._inflater.unconsumed_tail
            if not compressed:
                compressed = self._compressed[self._taken : self._taken + _COMPRESSED_STEP]
                self._taken += len(compressed)
            piece = self._inflater.decompress(compressed, _INFLATED_STEP)
            if not piece and (self._inflater.eof or not compressed):
                raise ValueError(f"it ends in the middle of a field, after {self._size} bytes")
            self._size += len(piece)
            if self._size > self._size_max:
                raise ValueError(f"it inflates to more than {self._size_max} bytes, from {len(self._compressed)}")
            pieces.append(piece)
            have += len(piece)
        self._data, self._position = b"".join(pieces), 0


def _topic_config(text: str) -> TopicConfig:
    """Parse `topic readQueueNums writeQueueNums perm filterType` and, since 5.0, a JSON map of attributes."""
    words = text.split(" ", 5)
    if len(words) < 5:
        raise ValueError(f"topic {text[:SHOWN_SIZE_MAX]!r} has fewer than five fields")
    attributes: Any = fastjson.loads(words[5]) if len(words) > 5 and words[5] else None
    return TopicConfig(words[0], int(words[1]), int(words[2]), int(words[3]), words[4], attributes=attributes)
