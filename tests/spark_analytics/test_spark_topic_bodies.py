"""Bodies of several topics, with a decoder for each topic."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pocketmq import spark_analytics
from pocketmq.spark_analytics.decoding import typed_bodies
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from tests.spark_analytics.spark_logs import LogBuilder
from tests.spark_analytics.streams import run_stream
from tests.spark_analytics.test_spark_schema_bodies import ORDER, VALUES, avro_order

pytestmark = pytest.mark.spark

DECODERS: dict[str, Any] = {
    "Orders": {"bodyAs": "avro", "bodySchema": ORDER},
    "Clicks": {"bodyAs": "json", "bodySchema": "infer", "inferSamples": 10},
    "%RETRY%Notes": {"bodyAs": "string"},
    "Raw": {"bodyAs": "plain"},
    "Free": {"bodyAs": "json"},
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder(200_000)
    log.append(avro_order(), topic="Orders")
    log.append(b'{"page": "a", "ms": 3}', topic="Clicks")
    log.append(b"caf\xc3\xa9 \xff", topic="%RETRY%Notes")
    log.append(zlib.compress(b"\x00\xff"), topic="Raw", sys_flag=1)
    log.append(b"no json", topic="Free")
    log.append(b"x" * 200, topic="Other")
    log.append(zlib.compress(b'{"page": "b", "user": {"id": 5}}'), topic="Clicks", sys_flag=1)
    return log.write(tmp_path / "store")


NOTHING = dict.fromkeys(DECODERS)
EXPECTED = [
    NOTHING | {"Orders": VALUES},
    NOTHING | {"Clicks": {"page": "a", "ms": 3, "user": None}},
    NOTHING | {"%RETRY%Notes": "caf\u00e9 \ufffd"},
    NOTHING | {"Raw": b"\x00\xff"},
    NOTHING,
    NOTHING,
    NOTHING | {"Clicks": {"page": "b", "ms": None, "user": {"id": 5}}},
]


def test_each_topic_has_a_field(spark: Any, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "decoders.json"
    file.write_text(json.dumps(DECODERS))
    source = spark.read.format("rocketmq").options(bodyDecoders=str(file), columns="topic,body")
    frame = source.load(str(store))
    assert frame.select("body.*").columns == list(DECODERS)
    assert frame.toArrow()["body"].to_pylist() == EXPECTED
    clicks = frame.where("topic = 'Clicks'").select("body.Clicks.*")
    assert [tuple(row) for row in clicks.selectExpr("page", "ms", "user.id").collect()] == [("a", 3, None), ("b", None, 5)]
    assert [row.text for row in frame.selectExpr("body.`%RETRY%Notes` AS text").dropna().collect()] == ["caf\u00e9 \ufffd"]


def test_without_spark_and_with_a_stream(spark: Any, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_bodies, "TYPED_SIZE_MAX", 150)  # the body of another topic is not decoded
    decoders = {topic: own for topic, own in DECODERS.items() if topic != "Orders"}
    found = spark_analytics.arrow(store, "body", body_decoders=decoders, topic=["Clicks", "Other"]).read_all()
    assert [row["Clicks"] for row in found["body"].to_pylist()] == [EXPECTED[1]["Clicks"], None, EXPECTED[6]["Clicks"]]

    def followed(**clicks: Any) -> list[Any]:
        told = json.dumps({"Clicks": {"bodyAs": "json", **clicks}})
        frame = spark.readStream.format("rocketmq").options(bodyDecoders=told, columns="topic,body").load(str(store))
        run_stream(frame.writeStream.format("memory").queryName("topics").trigger(availableNow=True).start)
        return [row.page for row in spark.sql("SELECT body.Clicks.page FROM topics WHERE topic = 'Clicks'").collect()]

    assert followed(bodySchema="page string") == ["a", "b"]
    with pytest.raises(PySparkException, match="a stream needs a fixed schema"):
        followed(bodySchema="infer")


def test_damaged_bodies_are_handled_by_mode(tmp_path: Path) -> None:
    log = LogBuilder(20_000)
    for topic, body in (("A", b'{"id": 1}'), ("A", b"no json"), ("B", b"no json")):
        log.append(body, topic=topic)
    store = log.write(tmp_path)
    decoders = {"A": {"bodyAs": "json", "bodySchema": "id int"}, "B": {"bodyAs": "string"}}
    with pytest.raises(DamagedRecordError, match="its body is not JSON"):
        spark_analytics.arrow(store, "body", body_decoders=decoders).read_all()
    left = spark_analytics.arrow(store, "topic,body", body_decoders=decoders, mode="DROPMALFORMED").read_all()
    assert left["body"].to_pylist() == [{"A": {"id": 1}, "B": None}, {"A": None, "B": "no json"}]
    shown = spark_analytics.arrow(store, "body", body_decoders=decoders, mode="PERMISSIVE").read_all()
    assert shown["body"].to_pylist()[1] is None


@pytest.mark.parametrize(
    ("decoders", "says"),
    [
        ("{", "option bodyDecoders is not JSON"),
        ("absent.json", "option bodyDecoders: there is no file absent.json"),
        ("{}", "option bodyDecoders must be a JSON object such as"),
        ('{"T": "json"}', "option bodyDecoders must be a JSON object such as"),
        ({"T": {"as": "json"}}, "topic T: unknown option as: known names are bodyAs"),
        ({"T": {"bodyAs": "xml"}}, "topic T: bodyAs is xml: it must be one of plain, string, json, avro, protobuf"),
        ({"T": {"bodyAs": "json", "bodySchema": 5}}, "topic T: bodySchema is 5: it must be a text"),
        ({"T": {"bodyAs": "json", "bodySchema": "infer", "inferSamples": "9"}}, "inferSamples is 9: it must be a number"),
        ({"T": {"bodyAs": "json", "bodySchema": "a"}}, "topic T: option bodySchema: 'a' is not a schema"),
        ({"T": {"bodyAs": "avro"}}, "topic T: bodyAs=avro needs the option bodySchema"),
    ],
)
def test_wrong_decoders_are_refused(store: Path, decoders: Any, says: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        spark_analytics.arrow(store, body_decoders=decoders)


def test_decoders_cannot_be_combined_with_body_options(store: Path) -> None:
    with pytest.raises(ValueError, match="option bodyDecoders sets the decoding of each topic: omit bodyAs"):
        spark_analytics.arrow(store, body_as="json", body_decoders={"T": {"bodyAs": "json"}})
    with pytest.raises(ValueError, match="none of 0 sampled bodies of Orderz is a JSON object"):
        spark_analytics.arrow(store, body_decoders={"Orderz": {"bodyAs": "json", "bodySchema": "infer"}})
