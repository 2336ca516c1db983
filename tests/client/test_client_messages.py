"""Encoding and decoding of messages, compared with records of Apache's broker as decoded by Apache's client."""

import gzip
import hashlib
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.message import (
    Message,
    decode_messages,
    encode_batch,
    encode_properties,
    unique_id,
)
from pocketmq.store.format.properties import decode_properties

GOLDEN = Path(__file__).parents[1] / "golden"


def commit_log(store: str) -> dict[int, bytes]:
    """Return the files of a golden CommitLog by the physical offset of their first byte."""
    with tarfile.open(GOLDEN / store / "store.tar.gz") as archive:
        files = [member for member in archive if member.isfile() and "/commitlog/" in member.name]
        return {int(Path(file.name).name): archive.extractfile(file).read() for file in files}  # type: ignore[union-attr]


def as_decoded_by_apache(store: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / store / "expected.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("store", ["v4_clean", "v5_clean"])
def test_apache_records_decode_as_in_apaches_client(store: str) -> None:
    files = commit_log(store)
    expected = as_decoded_by_apache(store)
    seen = 0
    for row in (row for row in expected if row["kind"] == "msg"):
        begin = max(first for first in files if first <= row["physicalOffset"])
        at = row["physicalOffset"] - begin
        (message,) = decode_messages(files[begin][at : at + row["storeSize"]], "broker-a")
        assert (message.queue_id, message.queue_offset, message.physical_offset) == (
            row["queueId"],
            row["queueOffset"],
            row["physicalOffset"],
        )
        assert message.properties == row["properties"]
        assert message.topic == (
            row["properties"].get("RETRY_TOPIC", row["topic"]) if row["topic"].startswith("%RETRY%") else row["topic"]
        )
        assert (message.born_timestamp_ms, message.store_timestamp_ms) == (row["bornTimestamp"], row["storeTimestamp"])
        assert message.reconsume_times == row["reconsumeTimes"]
        assert message.offset_msg_id == row["offsetMsgId"]
        assert hashlib.sha256(message.body).hexdigest() == row.get("plainSha256", row["bodySha256"])
        seen += 1
    assert seen > 300


def test_several_records_are_decoded_in_order() -> None:
    files = commit_log("v4_clean")
    rows = as_decoded_by_apache("v4_clean")[:5]
    end = rows[-1]["physicalOffset"] + rows[-1]["storeSize"]
    assert [message.physical_offset for message in decode_messages(files[0][:end], "b")] == [
        r["physicalOffset"] for r in rows
    ]


@given(st.integers(1, 200), st.binary(max_size=64))
def test_truncated_or_random_records_are_refused(cut: int, noise: bytes) -> None:
    record = struct.pack(">IIIiiqqiq", 300, 0xDAA320A7, 0, 0, 0, 0, 0, 0, 0) + noise
    with pytest.raises(ValueError, match="record|total size"):
        decode_messages(record[:cut], "b")


@given(st.dictionaries(st.text("abcXYZ_é", min_size=1), st.text(st.characters(exclude_characters="\x01\x02"), min_size=1)))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


def test_error_for_a_separator_names_the_property() -> None:
    with pytest.raises(ValueError, match="'bad'"):
        encode_properties({"bad": "a\x01b"})


def test_batch_encoding() -> None:
    messages = [Message("T", b"one", flag=7), Message("T", b"")]
    body = encode_batch(messages, [{"A": "1"}, {}])
    first = struct.pack(">IIIII", 20 + 3 + 2 + 4, 0, 0, 7, 3) + b"one" + struct.pack(">H", 4) + b"A\x011\x02"
    assert body == first + struct.pack(">IIIII", 22, 0, 0, 0, 0) + b"\0\0"


def test_unique_ids_are_unique_and_have_javas_format() -> None:
    ids = [unique_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(len(bytes.fromhex(text)) == 16 and text == text.upper() for text in ids)
