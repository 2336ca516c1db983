"""The body of REGISTER_BROKER in its three forms: JSON, JSON of brokers older than 3.0.11, and the compressed one."""

import struct
import zlib
from typing import Any, Final

import msgspec

from remoting import fastjson
from remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_body,
)

V3_0_11: Final = 37
"""Brokers below it send the topic table alone."""
INFLATED_SIZE_MAX: Final = 32 * 1024 * 1024
"""Largest inflated body in bytes: some 350,000 topics."""

_I32: Final = struct.Struct(">i")


class RegisterBodyError(ValueError):
    """The body cannot be read."""


def decode_register_body(body: bytes, version: int, is_compressed: bool, topics_max: int) -> RegisterBrokerBody:
    """Decode a body sent by a broker of `version`; an empty one means no topics. Raises RegisterBodyError.

    `topics_max` is registerTopicsMax: a compressed body of more is not read.
    """
    try:
        if not body:
            return RegisterBrokerBody()
        if version < V3_0_11:
            return RegisterBrokerBody(decode_body(TopicConfigSerializeWrapper, body))
        return _inflated(body, topics_max) if is_compressed else decode_body(RegisterBrokerBody, body)
    except (ValueError, zlib.error, struct.error, msgspec.DecodeError) as error:
        raise RegisterBodyError(f"body of the registration cannot be read: {error}") from None


def _inflated(body: bytes, topics_max: int) -> RegisterBrokerBody:
    """A zlib stream of: DataVersion JSON, count, topics as text, filter servers JSON; i32 lengths before each.

    What 5.x puts behind it (queue mappings of static topics) is not read.
    """
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, INFLATED_SIZE_MAX)
    if inflater.unconsumed_tail:
        raise ValueError(f"it inflates to more than {INFLATED_SIZE_MAX} bytes")
    version_json, position = _take(data, 0)
    (count,) = _I32.unpack_from(data, position)
    if count > topics_max:
        raise ValueError(f"{count} topics: registerTopicsMax={topics_max} is the limit")
    position += 4
    topics: dict[str, TopicConfig] = {}
    for _ in range(count):
        text, position = _take(data, position)
        config = _topic_config(text.decode())
        topics[config.topic_name] = config
    filter_json, position = _take(data, position)
    wrapper = TopicConfigSerializeWrapper(topics, decode_body(DataVersion, version_json))
    return RegisterBrokerBody(wrapper, msgspec.convert(fastjson.loads(filter_json) or [], list[str]))


def _take(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = _I32.unpack_from(data, position)
    end = position + 4 + length
    if length < 0 or end > len(data):
        raise ValueError(f"length {length} at {position} runs over its end")
    return data[position + 4 : end], end


def _topic_config(text: str) -> TopicConfig:
    """`topic readQueueNums writeQueueNums perm filterType` and, since 5.0, a JSON map of attributes."""
    words = text.split(" ", 5)
    if len(words) < 5:
        raise ValueError(f"topic {text!r} does not have five words")
    attributes: Any = fastjson.loads(words[5]) if len(words) > 5 and words[5] else None
    return TopicConfig(words[0], int(words[1]), int(words[2]), int(words[3]), words[4], attributes=attributes)
