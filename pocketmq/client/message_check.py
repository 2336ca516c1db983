"""Validation of messages, topic names and subscriptions before anything is sent.

A broker would refuse most of this too, but one request later and in terms of frames and headers. Errors here name the
argument, its value and a valid alternative: TypeError for a wrong type, ValueError for everything else.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

TOPIC_SIZE_MAX: Final = 127
GROUP_SIZE_MAX: Final = 255
DELAY_LEVEL_MAX: Final = 18
PROPERTIES_SIZE_MAX: Final = 32_767
"""Maximum size of a message's encoded properties, limited by a record's 16-bit field."""
MESSAGE_SIZE_MAX: Final = 4 * 1024 * 1024
"""Maximum size of a body; default of the broker's `maxMessageSize`."""

KEY_SEPARATOR: Final = " "
TAGS_SEPARATOR: Final = "||"
LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEGAL_NAME_SHOWN: Final = "letters, digits, '_', '-', '%' and '|'"
_SHOWN_SIZE_MAX: Final = 100
_SEPARATORS: Final = ("\0", "\x01", "\x02")

OWN_FIELDS: Final = {"TAGS": "tags", "KEYS": "keys", "DELAY": "delay_level"}
RESERVED: Final = frozenset(
    (
        *("REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"),
        *("TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__", "PGROUP"),
        *("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "CLUSTER", "MSG_REGION", "TRACE_ON", "TRANSFER_FLAG"),
        *("CORRECTION_FLAG", "MQ2_FLAG", "POP_CK", "1ST_POP_TIME", "INNER_MULTI_QUEUE_OFFSET", "__CRC32#"),
        *("TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
    )
)
"""Property names reserved for brokers and consumers. The sender may set UNIQ_KEY, WAIT, TIMER_DELAY_MS and such."""


def check_topic(topic: Any) -> None:
    """Raise if `topic` is not a valid topic name."""
    _check_name("topic", topic, TOPIC_SIZE_MAX)


def check_group(group: Any) -> None:
    """Raise if `group` is not a valid name of a producer or consumer group."""
    _check_name("group", group, GROUP_SIZE_MAX)


def body_bytes(body: Any, size_max: int, what: str = "body") -> bytes:
    """Return the body as bytes; other bytes-like objects are copied."""
    if isinstance(body, str):
        raise TypeError("body must be bytes, not str: encode it, as in body.encode()")
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError(f"body must be bytes, bytearray or memoryview, not {_kind(body)}")
    plain = body if isinstance(body, bytes) else bytes(body)
    if len(plain) > size_max:
        raise ValueError(
            f"{what} has {len(plain)} bytes, message_size_max allows {size_max}: send less, or raise message_size_max of "
            "the Producer and maxMessageSize of the brokers"
        )
    return plain


def check_tags(tags: Any) -> None:
    """Raise if `tags` is not one tag of a message."""
    if tags is None:
        return
    _check_text("tags", tags)
    if TAGS_SEPARATOR in tags:
        raise ValueError(f"tags {_shown(tags)} contain '||': a message has one tag, only a subscription has several")


def joined_keys(keys: Any) -> str:
    """Return the value of KEYS from a text with keys separated by spaces, or a list of keys; empty if there are none."""
    if keys is None:
        return ""
    if isinstance(keys, str):
        _check_text("keys", keys)
        return keys
    if not isinstance(keys, (Sequence, set, frozenset)) or isinstance(keys, (bytes, bytearray, memoryview)):
        raise TypeError(f"keys must be str or a list of str, not {_kind(keys)}")
    for key in keys:
        _check_text("a key", key)
        if not key or any(character.isspace() for character in key):
            raise ValueError(
                f"key {_shown(key)} is empty or contains a space: spaces separate keys, replace them by '_' or '-'"
            )
    return KEY_SEPARATOR.join(keys)


def check_delay_level(level: Any) -> None:
    """Raise if `level` is not a delay level."""
    _check_int("delay_level", level)
    if not 0 <= level <= DELAY_LEVEL_MAX:
        raise ValueError(
            f"delay_level {level} is not 0 (no delay) to {DELAY_LEVEL_MAX} (2 h): for another delay use delay= or "
            "deliver_at= (TIMER_DELAY_MS)"
        )


def check_flag(flag: Any) -> None:
    """Raise if `flag` is not a 32-bit number."""
    _check_int("flag", flag)
    if not -(2**31) <= flag < 2**31:
        raise ValueError(f"flag {flag} does not fit into a signed 32-bit number")


def check_user_properties(properties: Any) -> None:
    """Raise if a name or value cannot be sent, or the name is reserved."""
    if not isinstance(properties, dict):
        raise TypeError(f"properties must be a dict of str to str, not {_kind(properties)}")
    for name, value in properties.items():
        _check_text("a property name", name)
        _check_text(f"property {_shown(name)}", value)
        if not name or not value:
            raise ValueError(f"property {_shown(name)} has an empty name or value, which brokers drop: remove it")
        if name in OWN_FIELDS:
            raise ValueError(f"property {name} is reserved: use {OWN_FIELDS[name]}= of the message instead")
        if name in RESERVED:
            raise ValueError(f"property {name} is reserved for brokers and consumers: use another name")


def sender_properties(properties: dict[str, str]) -> dict[str, str]:
    """Return those properties of a received message that its sender gave, except tags, keys and delay level."""
    return {name: value for name, value in properties.items() if name not in OWN_FIELDS and name not in RESERVED}


def check_properties_size(text: str) -> None:
    """Raise if a message's encoded properties are too large."""
    size = len(text.encode(errors="surrogatepass"))
    if size > PROPERTIES_SIZE_MAX:
        raise ValueError(
            f"properties have {size} bytes (including tags and keys), the maximum is {PROPERTIES_SIZE_MAX}: put long "
            "values into the body"
        )


def _check_name(what: str, name: Any, size_max: int) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{what} must be str, not {_kind(name)}")
    if not name:
        raise ValueError(f"{what} is empty: use a name of {_LEGAL_NAME_SHOWN}")
    if LEGAL_NAME.fullmatch(name) is None:
        raise ValueError(f"{what} {_shown(name)} contains other characters than {_LEGAL_NAME_SHOWN}")
    if len(name) > size_max:
        raise ValueError(f"{what} {_shown(name)} has {len(name)} characters, the maximum is {size_max}")


def _check_text(what: str, text: Any) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be str, not {_kind(text)}")
    if any(separator in text for separator in _SEPARATORS):
        raise ValueError(f"{what} {_shown(text)} contains \\x00, \\x01 or \\x02, which separate properties on the wire")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} {_shown(text)} contains half of a surrogate pair, which UTF-8 cannot encode") from None


def _check_int(what: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be int, not {_kind(value)}")


def _kind(value: Any) -> str:
    return type(value).__name__


def _shown(text: Any) -> str:
    shown = ascii(text)
    return shown if len(shown) <= _SHOWN_SIZE_MAX else f"{shown[:_SHOWN_SIZE_MAX]}..."
