"""Bodies decoded by a schema into a struct."""

import json
import logging
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from pocketmq import spark_analytics
from pocketmq.spark_analytics.decoding import json_bodies, typed_bodies
from pocketmq.spark_analytics.decoding.body_types import ddl, of_ddl, of_spark, simple
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from tests.spark_analytics.spark_logs import LogBuilder
from tests.spark_analytics.streams import run_stream

pytestmark = pytest.mark.spark

ORDERS = [
    {"id": 1, "total": 9, "lines": [{"sku": "a", "n": 2}], "note": None, "a b": True},
    {"id": 2, "total": 9.5, "lines": [], "note": "caf\u00e9", "extra": {"x": [1, "y"]}},
]
INFERRED = (
    "struct<id:bigint,total:double,lines:array<struct<sku:string,n:bigint>>,note:string,`a b`:boolean,"
    "extra:struct<x:array<string>>>"
)
FULL = [
    {"id": 1, "total": 9.0, "lines": [{"sku": "a", "n": 2}], "note": None, "a b": True, "extra": None},
    {"id": 2, "total": 9.5, "lines": [], "note": "caf\u00e9", "a b": None, "extra": {"x": ["1", "y"]}},
]


def write(store: Path, *bodies: tuple[str, bytes]) -> Path:
    log = LogBuilder(200_000)
    for topic, body in bodies:
        log.append(body, topic=topic)
    return log.write(store)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """JSON orders, the second compressed, among other messages."""
    log = LogBuilder(200_000)
    log.append(json.dumps(ORDERS[0]).encode(), topic="Orders")
    log.append(b"no json", topic="Other")
    log.append(zlib.compress(json.dumps(ORDERS[1]).encode()), topic="Orders", sys_flag=1)
    return log.write(tmp_path / "store")


# --- JSON -----------------------------------------------------------------------------------------------------------


def test_inferred_schema_of_a_sample(spark: Any, orders: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"bodyAs": "json", "bodySchema": "infer", "topic": "Orders", "columns": "topic,body"}
    frame = spark.read.format("rocketmq").options(**options).load(str(orders))
    assert frame.schema["body"].dataType.simpleString() == INFERRED.replace("`", "")
    assert [row.body.asDict(recursive=True) for row in frame.collect()] == FULL
    assert [tuple(row) for row in frame.where("body.id = 2").selectExpr("body.note", "body.`a b`").collect()] == [
        ("caf\u00e9", None)
    ]
    with caplog.at_level(logging.WARNING):
        direct = spark_analytics.arrow(orders, "body", topic="Orders", body_as="json", body_schema="infer").read_all()
    assert direct["body"].to_pylist() == FULL
    assert "inferred from a sample of 2 records, of which 2 are JSON objects" in caplog.text
    assert INFERRED.removeprefix("struct<")[:-1] in caplog.text


def test_json_bodies_get_the_types_of_a_user_schema(spark: Any, orders: Path) -> None:
    def source(**options: str) -> Any:
        return spark.read.format("rocketmq").options(bodyAs="json", topic="Orders", **options)

    frame = source().schema("body struct<id: bigint, note: string>").load(str(orders))
    assert [tuple(row.body) for row in frame.collect()] == [(1, None), (2, "caf\u00e9")]
    assert source().schema("body string").load(str(orders)).count() == 2, "text, without a schema of bodies"
    by_option = source(bodySchema="`a b` boolean, total float", columns="body")
    assert [tuple(row.body) for row in by_option.load(str(orders)).collect()] == [(True, 9.0), (None, 9.5)]
    with pytest.raises(PySparkException, match="column body is struct<a b:boolean,total:float>, but the schema has string"):
        source(bodySchema="`a b` boolean, total float").schema("body string").load(str(orders)).count()


def test_sample_is_limited_and_spread_over_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = LogBuilder(4000)
    while len(log.files) < 20:
        log.append(b'{"file%d": 1}' % len(log.files))
    store = log.write(tmp_path)
    options: dict[str, Any] = {"body_as": "json", "body_schema": "infer", "max_partition_bytes": 4000}
    fields = spark_analytics.arrow(store, "body", infer_samples=16, **options).schema.field("body").type
    numbers = [int(field.name.removeprefix("file")) for field in fields]
    assert numbers[0] == 1 and numbers[-1] > 15 and len(numbers) <= 16
    assert "from a sample of 16 records" in caplog.text
    one = spark_analytics.arrow(store, "body", infer_samples=1, **options).schema.field("body").type
    assert [field.name for field in one] == ["file1"]


def test_bodies_that_do_not_match_the_schema_are_handled_by_mode(tmp_path: Path, orders: Path) -> None:
    bodies = [b'{"id": 1}', b"no json", b'{"id": "x"}', b'{"id": 4, "name": 7}', b"[]", b'{"id": 9223372036854775808}']
    store = write(tmp_path / "damaged", *(("T", body) for body in bodies))
    options: dict[str, Any] = {"body_as": "json", "body_schema": "id bigint, name string"}
    with pytest.raises(DamagedRecordError, match="damaged record at physical offset .*: its body is not JSON"):
        spark_analytics.arrow(store, "body", **options).read_all()
    left = spark_analytics.arrow(store, "body", mode="DROPMALFORMED", **options).read_all()
    assert left["body"].to_pylist() == [{"id": 1, "name": None}, {"id": 4, "name": "7"}]
    shown = spark_analytics.arrow(store, "topic,body,_corrupt_record", mode="PERMISSIVE", **options).read_all()
    assert [row is None for row in shown["body"].to_pylist()] == [False, True, True, False, True, True]
    assert shown["topic"].to_pylist() == ["T"] * 6
    assert [None if row is None else bodies[1] in row for row in shown["_corrupt_record"].to_pylist()][:2] == [None, True]
    assert spark_analytics.arrow(store, "topic", **options).read_all().num_rows == 6, "nobody asked for bodies"


def test_large_and_undecompressable_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_bodies, "TYPED_SIZE_MAX", 100)
    monkeypatch.setattr(typed_bodies, "_PORTION_SIZE", 20)
    log = LogBuilder(20_000)
    bodies = [b'{"id": %d}' % number for number in range(9)]
    for body in bodies:
        log.append(body)
    log.append(b'{"id": 1, "name": "%s"}' % (b"x" * 100))
    log.append(b"no stream", sys_flag=1)
    store = log.write(tmp_path)
    options: dict[str, Any] = {"body_as": "json", "body_schema": "id int"}
    left = spark_analytics.arrow(store, "body", mode="DROPMALFORMED", **options).read_all()
    assert left["body"].to_pylist() == [{"id": number} for number in range(9)]
    with pytest.raises(DamagedRecordError, match="its body has 121 bytes, bodies with a schema may have 100"):
        spark_analytics.arrow(store, "body", **options).read_all()
    with pytest.raises(DamagedRecordError, match="its body cannot be decompressed"):
        spark_analytics.arrow(store, "body", starting_offset=log.physical_offsets[-1], **options).read_all()


def test_polars_and_inferred_types(orders: Path) -> None:
    lazy = spark_analytics.scan(orders, "topic,body", topic="Orders", body_as="json", body_schema="infer")
    polars = pytest.importorskip("polars")
    assert lazy.select(polars.col("body").struct.field("id")).collect()["id"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        (['{"a": 1}', '{"a": 2.5}'], "struct<a:double>"),
        (['{"a": 1}', '{"a": "x"}'], "struct<a:string>"),
        (['{"a": null}', '{"b": []}'], "struct<a:string,b:array<string>>"),
        (['{"a": [1, null]}', '{"a": null}'], "struct<a:array<bigint>>"),
        (['{"a": {}, "b": true}'], "struct<b:boolean>"),
        (['{"a": 9223372036854775808}'], "struct<a:string>"),
        (["[1]", "7", "x", '{"a": [[1], [2.5]]}'], "struct<a:array<array<double>>>"),
        (['{"": 1, "x`y": 1}'], "struct<`x``y`:bigint>"),
    ],
)
def test_inferred_types(bodies: list[str], expected: str) -> None:
    assert ddl(json_bodies.inferred(body.encode() for body in bodies)[0]) == expected


def test_inference_is_limited(tmp_path: Path) -> None:
    deep = b'{"a": ' * 40 + b"1" + b"}" * 40
    assert "string" in ddl(json_bodies.inferred([deep])[0])
    wide = json.dumps({f"f{number}": 1 for number in range(json_bodies.FIELDS_MAX + 1)}).encode()
    with pytest.raises(ValueError, match="more than 1000 fields: give a schema"):
        json_bodies.inferred([wide])
    store = write(tmp_path, ("T", b"text"))
    with pytest.raises(ValueError, match="none of 1 sampled bodies is a JSON object"):
        spark_analytics.arrow(store, body_as="json", body_schema="infer")


def test_schemas_in_ddl_and_sparks_json() -> None:
    text = "`a b` bigint, c array<struct<d: string, `e``f` map<string, double>>>, g DECIMAL(5, 2), h timestamp_ntz"
    found = of_ddl(text)
    assert ddl(found) == (
        "struct<`a b`:bigint,c:array<struct<d:string,`e``f`:map<string,double>>>,g:decimal(5,2),h:timestamp_ntz>"
    )
    from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

    inner = StructType([StructField("d", StringType()), StructField("e f", MapType(StringType(), LongType()))])
    schema = StructType([StructField("a b", ArrayType(inner))])
    assert simple(of_spark(schema.jsonValue())) == schema.simpleString()
    assert of_spark({"type": "struct", "fields": []}) == pa.struct([])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"body_schema": "a int"}, "option bodySchema needs bodyAs=json, avro or protobuf, bodyAs is stored"),
        ({"body_as": "json", "infer_samples": 5}, "option inferSamples needs bodyAs=json and bodySchema=infer"),
        ({"body_as": "json", "body_schema": "infer", "infer_samples": 0}, "it must be from 1 to 100000"),
        ({"body_as": "json", "body_schema": "a"}, "option bodySchema: 'a' is not a schema such as"),
        ({"body_as": "json", "body_schema": "a int, a int"}, "option bodySchema: a struct has several fields named a"),
        ({"body_as": "json", "body_schema": "a date"}, "a JSON body has no value of type date: read a string and cast it"),
        ({"body_as": "json", "body_schema": "a text"}, "unknown type text: it must be"),
        ({"body_as": "json", "body_schema": "a map<int, int>"}, "the keys of a map must be of type string"),
        ({"body_as": "json", "body_schema": '{"type": "struct"}'}, "is not a type in Spark's JSON notation"),
        ({"body_as": "json", "body_schema": "a " + "array<" * 50}, "nested deeper than 16 levels"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        spark_analytics.arrow(write(tmp_path, ("T", b"{}")), **options)


def test_streams_need_a_schema(spark: Any, orders: Path, tmp_path: Path) -> None:
    def followed(schema: str) -> list[Any]:
        source = spark.readStream.format("rocketmq").option("bodyAs", "json").option("bodySchema", schema)
        frame = source.option("columns", "body").option("topic", "Orders").load(str(orders))
        run_stream(frame.writeStream.format("memory").queryName("typed").trigger(availableNow=True).start)
        return [row.body.id for row in spark.table("typed").collect()]

    assert followed("id bigint") == [1, 2]
    with pytest.raises(PySparkException, match="a stream needs a fixed schema"):
        followed("infer")
