"""Targets for text from clients and files: SQL92, properties, handles, ids, `.properties` files."""

import contextlib
import random
from pathlib import Path

from pocketmq.broker.access.acl.remote_address import remote_address_strategy
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.filter.expression_filter import ExpressionError, ExpressionFilter
from pocketmq.broker.filter.subscription import split_tags, tag_filter
from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.broker.put.put import split_properties
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.handles.pop_handle import Handle
from pocketmq.remoting.handles.recall_handle import decode_recall_handle
from pocketmq.runtime import config as runtime_config
from pocketmq.runtime import properties_file
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.format.properties import decode_properties, encode_properties, entries_from, value_of
from tests.broker.compiling import compile_expression
from tests.fuzz.fuzz_mutators import grow_value, grow_with_first_byte, mutate_text
from tests.fuzz.fuzz_oracle import One, Target, Wrong
from tests.golden.sql92_corpus import read_golden

SQL_PIECES = (
    b"(", b")", b" AND ", b" OR ", b"NOT ", b"a", b"=", b"<>", b">=", b"-", b"--", b"'x'", b"'", b"1", b"1e308",
    b"9" * 19, b" BETWEEN 1 AND 2",
    b" IS NULL", b" IS NOT NULL", b" IN ('a','b')", b" NOT IN ('a')", b"TRUE", b"FALSE", b" CONTAINS 'a'",
    b" STARTSWITH 'a'", b"0x1", b"/*",
    b"*/", b"\n", b"(" * 30, b"-" * 30, b"NOT " * 20, b" OR a=1" * 10, b"'a'," * 20, b"\xc3\xa9", b".5", b"5.", b"1L", b" ",
)  # fmt: skip


def _sql92() -> One:
    messages = [entries_from(text.encode()) for text in read_golden()[0][:12]]

    def one(data: bytes) -> None:
        verdicts = ExpressionFilter(compile_expression(data.decode("utf-8", "replace"))).judge(messages)
        if len(verdicts) != len(messages) or not all(type(verdict) is bool for verdict in verdicts):
            raise Wrong(f"verdicts {verdicts}")

    return one


def _sql92_seeds() -> list[bytes]:
    texts = list(read_golden()[1])
    return [text.encode() for text in texts[:: max(1, len(texts) // 150)]]


def _mutate_sql92(rng: random.Random, data: bytes) -> bytes:
    return mutate_text(rng, data, SQL_PIECES)


def _properties() -> One:
    def one(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        properties, stored = split_properties(text)
        decode_properties(data)
        encode_properties(properties)
        entries = entries_from(stored.encode("utf-8", "replace"))
        for name in list(properties)[:3]:
            value_of(entries, name)

    return one


PROPERTY_PIECES = (
    b"\1",
    b"\2",
    b"\1\1",
    b"\2\2",
    b"KEYS\1k\2",
    b"DELAY\1" + b"3\2",
    b"TAGS\1",
    b"\0",
    b"\xff",
    b"a\1b\2" * 20,
    b"9" * 20,
)


def _mutate_properties(rng: random.Random, data: bytes) -> bytes:
    return mutate_text(rng, data, PROPERTY_PIECES)


def _names() -> One:
    readers = (
        lambda text: decode_message_id(text),
        lambda text: decode_recall_handle(text).encode(),
        lambda text: str(Handle.parse(text)),
        lambda text: (split_tags(text), tag_filter(text)),
        lambda text: remote_address_strategy(text)("127.0.0.1"),
        lambda text: remote_address_strategy(text)("fe80::1"),
    )

    def one(data: bytes) -> None:
        if data:
            readers[data[0] % len(readers)](data[1:].decode("utf-8", "replace"))

    return one


def _name_seeds() -> list[bytes]:
    return [
        b"\0" + b"7F00000100002A9F0000000000000123", b"\0" + b"0" * 56,
        b"\1" + b"djEgVCBiIDE3MDAwMDAwMDAwMDAgVUE=", b"\2" + b"0 1700000000000 60000 0 0 b 0 0", b"\2" + b"0 1 1 0 1 b",
        b"\3" + b"TagA || TagB", b"\3*", b"\3||", b"\4" + b"10.0.0.*", b"\4" + b"10.0.0.1-9", b"\4" + b"10.0.0.{1,2}",
        b"\4*",
        b"\5" + b"fe80::1-9", b"\5" + b"fe80:*:*:*:*:*:*:*", b"\4" + b"10.0.0.1,10.0.0.2",
    ]  # fmt: skip


CONFIGS = ((BrokerConfig, MessageStoreConfig), (NamesrvConfig,))


def _properties_file() -> One:
    def one(data: bytes) -> None:
        text = properties_file.decode(data)
        properties = properties_file.loads(text)
        if properties_file.loads(properties_file.dumps(properties)) != properties:
            raise Wrong("the properties differ after they are written and read again")
        for classes in CONFIGS:
            with contextlib.suppress(runtime_config.ConfigError):
                runtime_config.bind(list(classes), properties, frozenset())
        properties_file.loads(properties_file.edited(text, {"a": "b"}))

    return one


def _properties_file_seeds() -> list[bytes]:
    folder = Path(__file__).parents[3] / "conf"
    lines = b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.conf"))).split(b"\n")
    values = [line.lstrip(b"# ") for line in lines if b"=" in line]
    small = [b"a=b", b"a:b\\\n  c", b"#c\n!d\na b", b"\\u0041=\\t", b"k=\xe9", b"a=1\r\nb=2\rc=3"]
    return small + [b"\n".join(values[at : at + 8]) for at in range(0, len(values), 8)]


FILE_PIECES = (
    b"\\",
    b"\\\n",
    b"\\u00",
    b"\\u0041",
    b"=",
    b":",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"#",
    b"!",
    b"-1",
    b"9" * 30,
    b"true",
    b"NaN",
    b"\xff",
)


def _mutate_file(rng: random.Random, data: bytes) -> bytes:
    return mutate_text(rng, data, FILE_PIECES)


TARGETS = (
    Target(
        "sql92", _sql92, _sql92_seeds, (ExpressionError,), _mutate_sql92, grow_value, ns_per_byte=10_000, base_ms=150,
    ),
    Target("properties", _properties, lambda: [
        b"KEYS\x01k1 k2\x02TAGS\x01a\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02", b"DELAY\x013", b"", b"a\x01\x02b",
        b"\x01\x02\x01\x02",
        b"a\x01b\x02a\x01c\x02", b"TIMER_DELIVER_MS\x011700000005000\x02",
    ], (RemotingError, UnicodeDecodeError), _mutate_properties),
    Target("names", _names, _name_seeds, (ValueError,), grow=grow_with_first_byte),
    Target("properties_file", _properties_file, _properties_file_seeds, (ValueError,), _mutate_file, ns_per_byte=25_000),
)  # fmt: skip
