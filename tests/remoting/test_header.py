"""Encoding and decoding of declared headers."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.header import NoHeader, ext_json, ext_map, from_ext
from pocketmq.remoting.headers.query import QueryMessageRequestHeader
from pocketmq.remoting.headers.route import RegisterBrokerResponseHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from tests.remoting.declared import HEADERS
from tests.remoting.strategies import headers


def test_header_classes_are_found():
    assert len(HEADERS) > 30


@pytest.mark.parametrize("declared", HEADERS, ids=lambda declared: declared.__name__)
@given(data=st.data())
def test_every_header_survives_a_round_trip(declared, data):
    header = data.draw(headers(declared))
    ext = ext_map(header)
    assert all(isinstance(value, str) for value in ext.values())
    assert json.loads(ext_json(header)) == ext
    assert from_ext(declared, ext) == header


def test_field_names_and_texts_on_the_wire():
    header = SendMessageResponseHeader("0A", 3, 12)
    assert ext_map(header) == {
        "msgId": "0A",
        "queueId": "3",
        "queueOffset": "12",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert ext_map(QueryMessageRequestHeader("t", "k", 1, 2, 3, True))["_UNIQUE_KEY_QUERY"] == "true"
    assert ext_json(RegisterBrokerResponseHeader()) == b"{}"
    assert ext_json(NoHeader()) == b"{}"


def test_single_letter_fields_of_send_v2_are_mapped():
    ext = {
        "a": "group", "b": "topic", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000",
        "h": "7", "i": "KEYS\1k", "j": "1", "k": "false", "l": "16", "m": "true",
    }  # fmt: skip
    assert from_ext(SendMessageRequestHeaderV2, ext) == SendMessageRequestHeaderV2(
        "group", "topic", "TBW102", 4, 2, 0, 1700000000000, 7, "KEYS\1k", 1, False, True, 16
    )
    assert issubclass(SendMessageRequestHeaderV2, SendMessageRequestHeader)


@pytest.mark.parametrize(
    ("ext", "said"),
    [
        ({}, "topic"),
        ({"producerGroup": "g", "topic": "t", "defaultTopic": "d", "defaultTopicQueueNums": "x"}, "defaultTopicQueueNums"),
        ({"producerGroup": "g", "topic": "t", "defaultTopic": "d", "defaultTopicQueueNums": "2147483648"}, "2147483647"),
    ],
)
def test_invalid_field_is_named(ext, said):
    declared = SendMessageRequestHeader if ext else TopicRequestHeader
    with pytest.raises(msgspec.ValidationError, match=said):
        from_ext(declared, ext)


def test_unknown_fields_are_ignored():
    assert from_ext(TopicRequestHeader, {"topic": "t", "ns": "x", "nsd": "false", "bname": "b"}) == TopicRequestHeader("t")
