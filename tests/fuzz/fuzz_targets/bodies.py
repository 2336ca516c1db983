"""Targets for bodies: JSON of every declared class, fastjson's dialect, registrations, batches."""

import random
import struct
import zlib

import msgspec

from pocketmq.broker.pop.pop_record import read_revive_record
from pocketmq.broker.put.batch import batch_members
from pocketmq.broker.transaction.transaction_op import named_offsets
from pocketmq.namesrv.register_body import RegisterBodyError, decode_register_body
from pocketmq.remoting import bodies, delay_bodies, fastjson, pop_bodies
from pocketmq.remoting.bodies import Body, decode_body, encode_body
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.frame import FrameBuffer
from tests.fuzz.fuzz_mutators import grow_with_first_byte, mutate_json, mutate_text
from tests.fuzz.fuzz_oracle import One, Target, Wrong
from tests.fuzz.fuzz_targets.wire import recorded_frames

DECLARED: list[type[Body]] = sorted(
    {
        value
        for module in (bodies, pop_bodies, delay_bodies)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Body) and value is not Body
    },
    key=lambda declared: declared.__name__,
)


def sample_of(annotation: object, depth: int = 0) -> object:
    """Return a value of a declared type."""
    text = str(annotation)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return {field.encode_name: sample_of(field.type, depth + 1) for field in msgspec.structs.fields(annotation)}
    args = getattr(annotation, "__args__", ())
    if text.startswith("list["):
        return [sample_of(args[0], depth + 1)]
    if text.startswith("dict["):
        return {"k": sample_of(args[1], depth + 1)}
    if args:
        return sample_of(args[0], depth)
    return {int: 1, bool: True, bytes: "AQ=="}.get(annotation, "T")  # type: ignore[call-overload]


def recorded_bodies() -> list[bytes]:
    """Return the distinct recorded JSON bodies."""
    found = set()
    for frames in recorded_frames().values():
        for data in frames:
            for _, _, body in FrameBuffer().feed(data):
                if body[:1] in (b"{", b"["):
                    found.add(body)
    return sorted(found)


def _bodies() -> One:
    def one(data: bytes) -> None:
        if data:
            encode_body(decode_body(DECLARED[data[0] % len(DECLARED)], data[1:]))

    return one


def _body_seeds() -> list[bytes]:
    samples = [bytes((number,)) + msgspec.json.encode(sample_of(declared)) for number, declared in enumerate(DECLARED)]
    recorded = [bytes((number % len(DECLARED),)) + body for number, body in enumerate(recorded_bodies() * 3)]
    attacks = [bytes((number,)) + b'{"' + b'\\"' * 500 for number in range(0, len(DECLARED), 7)]
    return samples + recorded + attacks


def _mutate_behind_first(rng: random.Random, data: bytes) -> bytes:
    first = bytes((rng.randrange(256),)) if rng.random() < 0.1 else data[:1]
    return first + mutate_json(rng, data[1:])


def _fastjson() -> One:
    def one(data: bytes) -> None:
        value = fastjson.loads(data)
        try:
            again = fastjson.loads(fastjson.dumps(value))
        except (TypeError, UnicodeEncodeError, OverflowError):
            return  # accepted only by Python's own reader: lone surrogates, numbers of any size
        if again != value and "nan" not in str(value).lower() and "inf" not in str(value).lower():
            raise Wrong(f"read as {str(value)[:80]}, written and read again as {str(again)[:80]}")

    return one


def _fastjson_seeds() -> list[bytes]:
    loose = [
        b'{0:"a",1:{"b":[1,2]}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:12}}',
        b"[]",
        b"null",
        b'{"a":"\\""}',
    ]
    loose += [b'{"' + b'\\"' * 500, b"{0:" * 300, b'{{"a":' * 200, b"[" * 1500, b"{{" + b'"a":1,' * 200, b'{{"a":1}' * 200]
    return [*loose, *recorded_bodies()]


def _register() -> One:
    def one(data: bytes) -> None:
        if data:
            decode_register_body(data[1:], (401, 36)[data[0] >> 1 & 1], bool(data[0] & 1), 50_000)

    return one


def _register_seeds() -> list[bytes]:
    body = msgspec.json.encode(sample_of(bodies.RegisterBrokerBody))
    table = msgspec.json.encode(sample_of(bodies.TopicConfigSerializeWrapper))
    topics = [b"T 4 4 6 SINGLE_TAG", b'T2 8 8 6 SINGLE_TAG {"+message.type":"NORMAL"}']
    return [b"\0" + body, b"\2" + table, b"\1" + _compressed(topics), b"\1" + _compressed([])]


def _compressed(topics: list[bytes], version: bytes = b'{"counter":1,"timestamp":2}', servers: bytes = b"[]") -> bytes:
    def piece(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    return zlib.compress(piece(version) + struct.pack(">i", len(topics)) + b"".join(map(piece, topics)) + piece(servers))


def _mutate_register(rng: random.Random, data: bytes) -> bytes:
    """Mutate a body; if it is compressed, mutate the decompressed content."""
    if not data or not data[0] & 1 or rng.random() < 0.1:
        return data[:1] + mutate_json(rng, data[1:])
    try:
        inside = zlib.decompressobj().decompress(data[1:], 1 << 16)
    except zlib.error:
        return data[:1] + mutate_text(rng, data[1:])
    pieces = (b"\0\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b" ", b"9" * 30, b'{"a":1}', b'{"')
    return data[:1] + zlib.compress(mutate_text(rng, inside, pieces), 1)


def _grow_register(data: bytes, size: int, rng: random.Random) -> bytes:
    if not data or not data[0] & 1:
        return grow_with_first_byte(data, size, rng)
    try:
        inside = zlib.decompressobj().decompress(data[1:], 1 << 16)
    except zlib.error:
        return data
    # Stored without compression, because cost is measured per sent byte.
    return data[:1] + zlib.compress(grow_with_first_byte(inside, size, rng), 0)


def _batch() -> One:
    return lambda data: list(batch_members(data)) and None


def _batch_seeds() -> list[bytes]:
    def member(body: bytes, properties: bytes) -> bytes:
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
        head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
        return head + body + struct.pack(">h", len(properties)) + properties

    one = member(b"hello", b"KEYS\x01k\x02WAIT\x01true\x02")
    return [one, one * 3, member(b"", b""), member(b"x" * 100, b"DELAY\x013\x02TAGS\x01a\x02")]


def _pop_records() -> One:
    def one(data: bytes) -> None:
        if not data:
            return
        if data[0] % 4 == 3:
            named_offsets(data[1:])
            return
        record = read_revive_record(("ck", "ack", "bAck")[data[0] % 4], data[1:])
        record.key  # noqa: B018  # reads its fields
        record.queue_offsets  # noqa: B018

    return one


def _pop_record_seeds() -> list[bytes]:
    from pocketmq.broker.pop.pop_record import Ack, CheckPoint

    samples = [msgspec.json.encode(sample_of(declared)) for declared in (CheckPoint, Ack)]
    return [b"\0" + samples[0], b"\1" + samples[1], b"\2" + samples[1], b"\3" + b"1,2,3,", b"\3" + b"17"]


TARGETS = (
    Target("bodies", _bodies, _body_seeds, (ValueError,), _mutate_behind_first, grow_with_first_byte, weight=2.0),
    Target("fastjson", _fastjson, _fastjson_seeds, (ValueError,), mutate_json, weight=2.0),
    Target(
        "register_body",
        _register,
        _register_seeds,
        (RegisterBodyError,),
        _mutate_register,
        _grow_register,
        ns_per_byte=10_000,
    ),
    Target("batch_body", _batch, _batch_seeds, (RemotingError,), ns_per_byte=1_000),
    Target("pop_records", _pop_records, _pop_record_seeds, (ValueError,), _mutate_behind_first, grow_with_first_byte),
)
