"""Avro and Protocol Buffers bodies, written by fastavro and protobuf."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from pocketmq import spark_analytics
from pocketmq.spark_analytics.decoding.body_types import ddl
from pocketmq.spark_analytics.reading import body_options
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from tests.spark_analytics.spark_logs import LogBuilder

pytestmark = pytest.mark.spark

AT = datetime(2026, 11, 21, 17, 39, 39, 542000, UTC)
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
}
ORDER_FIELDS: dict[str, tuple[Any, Any, str]] = {
    "id": ("long", 7, "bigint"),
    "lines": ({"type": "array", "items": LINE}, [{"sku": "a", "n": 2}, {"sku": "b", "n": None}],
              "array<struct<sku:string,n:int>>"),
    "first": (["null", "shop.Line"], None, "struct<sku:string,n:int>"),
    "state": ({"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "PAID", "string"),
    "digest": ({"type": "fixed", "name": "Digest", "size": 2}, b"\x00\xff", "binary"),
    "raw": ({"type": "bytes"}, b"\x01", "binary"),
    "flags": ({"type": "map", "values": "boolean"}, [("x", True)], "map<string,boolean>"),
    "ratio": ("float", 0.5, "float"),
    "wide": (["int", "long"], 2**40, "bigint"),
    "number": (["null", "float", "double"], 1.25, "double"),
    "at": ({"type": "long", "logicalType": "timestamp-millis"}, AT, "timestamp"),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, AT.replace(tzinfo=None), "timestamp_ntz"),
    "day": ({"type": "int", "logicalType": "date"}, date(2026, 11, 21), "date"),
    "price": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("12.50"), "decimal(9,2)"),
    "key": ({"type": "string", "logicalType": "uuid"}, "9f4f9a5e-0000-4000-8000-000000000001", "string"),
    "clock": ({"type": "int", "logicalType": "time-millis"}, 1000, "int"),
}  # fmt: skip
ORDER = {
    "type": "record",
    "namespace": "shop",
    "name": "Order",
    "fields": [{"name": name, "type": kind} for name, (kind, _, _) in ORDER_FIELDS.items()],
}
VALUES = {name: value for name, (_, value, _) in ORDER_FIELDS.items()}


def avro_order(**values: Any) -> bytes:
    """Return an order as fastavro writes it."""
    stream = io.BytesIO()
    own = VALUES | {"flags": dict(VALUES["flags"]), "clock": 1000} | values
    plain = json.loads(
        json.dumps(ORDER).replace('"logicalType": "time-millis"', '"doc": ""').replace('"logicalType": "uuid"', '"doc": ""')
    )
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), own)
    return stream.getvalue()


def write(store: Path, *bodies: bytes) -> Path:
    log = LogBuilder(200_000)
    for body in bodies:
        log.append(body)
    return log.write(store)


def rows(store: Path, **options: Any) -> list[Any]:
    table = spark_analytics.arrow(store, "body", **options).read_all()
    table.validate(full=True)
    return table["body"].to_pylist()


# --- Avro -----------------------------------------------------------------------------------------------------------


def test_avro_types_and_values(spark: Any, tmp_path: Path) -> None:
    store = write(tmp_path / "store", avro_order(), avro_order(id=8, first={"sku": "c", "n": 1}, flags={}))
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    expected = [VALUES, VALUES | {"id": 8, "first": {"sku": "c", "n": 1}, "flags": []}]
    found = spark_analytics.arrow(store, "body", body_as="avro", body_schema=ORDER)
    assert ddl(found.schema.field("body").type) == (
        f"struct<{','.join(f'{name}:{kind}' for name, (_, _, kind) in ORDER_FIELDS.items())}>"
    )
    assert found.read_all()["body"].to_pylist() == expected
    frame = spark.read.format("rocketmq").options(bodyAs="avro", bodySchema=str(file), columns="body").load(str(store))
    assert frame.toArrow()["body"].to_pylist() == expected
    assert [tuple(row) for row in frame.selectExpr("body.id", "body.lines[0].sku", "body.price + 1").collect()] == [
        (7, "a", Decimal("13.50")),
        (8, "a", Decimal("13.50")),
    ]


def test_bodies_that_are_not_avro_are_handled_by_mode(tmp_path: Path) -> None:
    good = avro_order()
    bad = [good[:-1], good + b"x", b"", b"\xff" * 40]
    store = write(tmp_path, good, *bad)
    options: dict[str, Any] = {"body_as": "avro", "body_schema": ORDER}
    with pytest.raises(DamagedRecordError, match="its body does not match the Avro schema"):
        rows(store, **options)
    assert rows(store, mode="DROPMALFORMED", **options) == [VALUES]
    assert rows(store, mode="PERMISSIVE", **options) == [VALUES, *[None] * len(bad)]


def test_values_that_do_not_fit_are_damage(tmp_path: Path) -> None:
    """A decimal with more digits than its schema says, and a time after the end of the calendar."""
    schema = {
        "type": "record", "name": "R", "fields": [
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ]
    }  # fmt: skip
    fine, huge, late = b"\x02\x05\x00", b"\x06\x7f\xff\xff\x00", b"\x02\x05" + b"\xfe" * 8 + b"\x01"
    store = write(tmp_path, fine, huge, late)
    found = rows(store, body_as="avro", body_schema=schema, mode="PERMISSIVE")
    assert found == [{"price": Decimal(5), "at": datetime(1970, 1, 1, tzinfo=UTC)}, None, None]


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("long", "there is no file long"),
        ('"long"', "must be a record"),
        ("{", "the Avro schema is not JSON"),
        (record("other"), "not an Avro schema: UnknownType"),
        (record({"type": "array", "items": "null"}), "whose items take no bytes is not supported: it could have any length"),
        (record({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), "whose items take no bytes"),
        (record(["null", "R"]), "the Avro record R contains itself"),
        (record(["string", "long"]), "is not of null and one other type"),
        (record("null"), "the Avro type null is supported only in a union with another type"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 50}), "Spark supports up to 38 digits"),
    ],
)  # fmt: skip
def test_avro_schemas_that_are_refused(tmp_path: Path, schema: Any, says: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        spark_analytics.arrow(write(tmp_path), body_as="avro", body_schema=schema)


# --- Protocol Buffers -----------------------------------------------------------------------------------------------


def descriptor_set() -> descriptor_pb2.FileDescriptorSet:
    """Return the descriptor set that protoc writes for shop.proto, with its imports."""
    own = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    own.dependency.append("google/protobuf/timestamp.proto")
    state = own.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    line = own.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=1)
    order = own.message_type.add(name="Order")
    fields: list[tuple[str, Any, int, str]] = [
        ("id", Field.TYPE_UINT64, 1, ""),
        ("lines", Field.TYPE_MESSAGE, 3, ".shop.Line"),
        ("first", Field.TYPE_MESSAGE, 1, ".shop.Line"),
        ("state", Field.TYPE_ENUM, 1, ".shop.State"),
        ("at", Field.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
        ("raw", Field.TYPE_BYTES, 1, ""),
        ("sizes", Field.TYPE_SINT32, 3, ""),
        ("count", Field.TYPE_UINT32, 1, ""),
        ("stock", Field.TYPE_MESSAGE, 3, ".shop.Order.StockEntry"),
    ]
    for number, (name, kind, label, type_name) in enumerate(fields, 1):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    entry = order.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, label=1, type_name=".shop.Line")
    tree = own.message_type.add(name="Tree")
    tree.field.add(name="left", number=1, type=Field.TYPE_MESSAGE, label=1, type_name=".shop.Tree")
    own.message_type.add(name="Nothing")
    times = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    return descriptor_pb2.FileDescriptorSet(file=[own, times])  # not in the order of imports


def message(name: str = "shop.Order") -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(descriptor_set().file):
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptor_set().SerializeToString())
    return file


def proto_orders() -> list[bytes]:
    order = message()(id=2**64 - 1, state=1, raw=b"\xff", sizes=[1, -2], count=2**32 - 1)
    order.lines.add(sku="a")
    order.first.SetInParent()
    order.at.FromDatetime(AT.replace(tzinfo=None))
    order.stock["x"].sku = "y"
    unknown = message()(state=7)
    return [order.SerializeToString(), unknown.SerializeToString()]


PROTO_VALUES = [
    {
        "id": Decimal(2**64 - 1), "lines": [{"sku": "a"}], "first": {"sku": ""}, "state": "PAID", "at": AT, "raw": b"\xff",
        "sizes": [1, -2], "count": 2**32 - 1, "stock": [("x", {"sku": "y"})],
    },
    {
        "id": Decimal(0), "lines": [], "first": None, "state": "7", "at": None, "raw": b"", "sizes": [], "count": 0,
        "stock": [],
    },
]  # fmt: skip


def test_protobuf_types_and_values(spark: Any, tmp_path: Path, descriptors: Path) -> None:
    store = write(tmp_path / "store", *proto_orders())
    source = spark.read.format("rocketmq").options(bodyAs="protobuf", bodySchema=str(descriptors), bodyMessage="shop.Order")
    frame = source.option("columns", "body").load(str(store))
    assert frame.schema["body"].dataType.simpleString() == (
        "struct<id:decimal(20,0),lines:array<struct<sku:string>>,first:struct<sku:string>,state:string,at:timestamp,raw:binary,"
        "sizes:array<int>,count:bigint,stock:map<string,struct<sku:string>>>"
    )
    descriptors.rename(tmp_path / "moved")  # tasks have its content
    with pytest.raises(Exception, match="there is no file"):
        source.load(str(store)).count()
    (tmp_path / "moved").rename(descriptors)
    assert frame.toArrow()["body"].to_pylist() == PROTO_VALUES
    assert frame.where("body.first is null").selectExpr("body.state").collect()[0].state == "7"


def test_bodies_that_are_not_the_message_are_handled_by_mode(tmp_path: Path, descriptors: Path) -> None:
    good = proto_orders()[0]
    late = message()()
    late.at.seconds = 2**60
    store = write(tmp_path / "store", good, b"\xff\xff", good[:-1], late.SerializeToString())
    options: dict[str, Any] = {"body_as": "protobuf", "body_schema": descriptors, "body_message": "shop.Order"}
    with pytest.raises(DamagedRecordError, match=r"its body is not a shop\.Order: "):
        rows(store, **options)
    assert rows(store, mode="DROPMALFORMED", **options) == PROTO_VALUES[:1]
    assert [row is None for row in rows(store, mode="PERMISSIVE", **options)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"bodySchema": "F", "bodyMessage": "shop.Ordre"},
            "no message shop.Ordre in the descriptor set: it has .*shop.Order",
        ),
        ({"bodySchema": "F", "bodyMessage": "shop.Tree"}, "the message shop.Tree contains itself"),
        ({"bodySchema": "F", "bodyMessage": "shop.Nothing"}, "option bodySchema: it has no fields"),
        ({"bodySchema": "F"}, "bodyAs=protobuf needs the option bodyMessage"),
        ({"bodyMessage": "shop.Order"}, "bodyAs=protobuf needs the option bodySchema: the file of a descriptor set"),
        ({"bodySchema": "absent.desc", "bodyMessage": "shop.Order"}, "there is no file absent.desc"),
        ({"bodySchema": "TEXT", "bodyMessage": "shop.Order"}, "not a descriptor set of protoc"),
        ({"bodySchema": "LARGE", "bodyMessage": "shop.Order"}, "at most 4 are read"),
        ({"bodyAs": "avro"}, "bodyAs=avro needs the option bodySchema: an Avro schema in JSON, or its file"),
        (
            {"bodyAs": "avro", "bodySchema": "{}", "bodyMessage": "M"},
            "option bodyMessage needs bodyAs=protobuf, bodyAs is avro",
        ),
        ({"bodyAs": "string", "bodySchema": "F"}, "option bodySchema needs bodyAs=json, avro or protobuf, bodyAs is string"),
    ],
)
def test_wrong_protobuf_options_are_refused(
    tmp_path: Path, descriptors: Path, options: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text"
    text.write_text("syntax")
    if options.get("bodySchema") == "LARGE":
        monkeypatch.setattr(body_options, "SCHEMA_SIZE_MAX", 4)
    schema = {"F": str(descriptors), "TEXT": str(text), "LARGE": str(text)}.get(options.get("bodySchema", ""))
    given = {"bodyAs": "protobuf"} | options | ({"bodySchema": schema} if schema else {})
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        spark_analytics.arrow(write(tmp_path / "store"), **given)


def test_a_descriptor_set_without_imports_is_refused(tmp_path: Path) -> None:
    """Only imports that the protobuf library contains itself may be missing."""
    whole = descriptor_set()
    file = tmp_path / "alone.desc"
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[whole.file[0]]).SerializeToString())
    options: dict[str, Any] = {"body_as": "protobuf", "body_schema": file, "body_message": "shop.Order"}
    store = write(tmp_path / "store", *proto_orders())
    assert rows(store, **options) == PROTO_VALUES
    whole.file[0].dependency.append("other.proto")
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[whole.file[0]]).SerializeToString())
    with pytest.raises(ValueError, match=r"lacks other.proto: make it with protoc --include_imports"):
        rows(store, **options)
