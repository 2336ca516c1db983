"""Decoding and encoding of commands in both serialisations."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.codes import JSON, ROCKETMQ, LanguageCode
from pocketmq.remoting.command import Response, _encode_binary, decode_header, encode_request
from pocketmq.remoting.frame import FrameBuffer, FrameError
from pocketmq.remoting.headers.send import SendMessageResponseHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.remoting.signature import Sender
from tests.remoting.declared import BinaryHeader
from tests.remoting.recordings import CLIENTS, all_recorded, recorded
from tests.remoting.strategies import EXT, TEXT

I16, I32 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)


def the_frame(data):
    (frame,) = FrameBuffer().feed(data)
    return frame


@pytest.mark.parametrize("client", CLIENTS)
def test_recorded_headers_match_an_independent_decoder(client):
    for row in recorded(client):
        serialize_type, header, body = the_frame(row.data)
        command, read = decode_header(serialize_type, header), row.read
        language = read["language"] if serialize_type == JSON else LanguageCode(read["language"]).name
        assert (command.code, command.flag, command.opaque) == (read["code"], read["flag"], read["opaque"])
        assert (command.version, command.language) == (read["version"], language)
        assert (command.ext or {}) == (read["ext"] or {})
        assert (command.remark or None) == (read["remark"] or None)


def test_recordings_contain_both_serialisations():
    kinds = {the_frame(row.data)[0] for row in all_recorded()}
    assert kinds == {JSON, ROCKETMQ}


@given(I16, st.sampled_from(list(LanguageCode)), I16, I32, I32, TEXT, EXT)
def test_binary_headers_built_from_the_layout_decode(code, language, version, opaque, flag, remark, ext):
    fixed = {"code": code, "language": language.value, "version": version, "opaque": opaque, "flag": flag}
    entries = [{"key": key, "value": value} for key, value in ext.items()]
    command = decode_header(ROCKETMQ, BinaryHeader.build({"fixed": fixed, "remark": remark, "ext": entries}))
    assert (command.code, command.language, command.version) == (code, language.name, version)
    assert (command.opaque, command.flag, command.remark or "", command.ext or {}) == (opaque, flag, remark, ext)


@given(I16, I16, I32, I32, TEXT, EXT)
def test_encoded_binary_headers_parse_by_the_layout(code, version, opaque, flag, remark, ext):
    parsed = BinaryHeader.parse(_encode_binary(code, Sender(version=version), opaque, flag, remark, ext))
    assert (parsed.fixed.code, parsed.fixed.version, parsed.fixed.opaque, parsed.fixed.flag) == (code, version, opaque, flag)
    assert parsed.fixed.language == LanguageCode.PYTHON
    assert (parsed.remark, {entry.key: entry.value for entry in parsed.ext}) == (remark, ext)


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
@pytest.mark.parametrize(
    "response",
    [
        Response(),
        Response(17, remark='no "topic"\n'),
        Response(0, SendMessageResponseHeader("é", 1, 2), b"body"),
        Response(11, SendMessageResponseHeader("id", 1, 2), [b"ab", memoryview(b"cd")], "stored"),
    ],
)
def test_responses_survive_a_round_trip(serialize_type, response):
    out = []
    response.encode_into(out, 77, serialize_type)
    got_type, header, body = the_frame(b"".join(out))
    command = decode_header(got_type, header)
    assert got_type == serialize_type
    assert (command.code, command.opaque, command.flag, command.remark) == (response.code, 77, 1, response.remark)
    if response.header is not None:
        assert command.header(SendMessageResponseHeader) == response.header
    assert body == (response.body if isinstance(response.body, bytes) else b"abcd")


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
@pytest.mark.parametrize("oneway", [False, True])
def test_requests_survive_a_round_trip(serialize_type, oneway):
    buffers = encode_request(105, TopicRequestHeader("t\1é"), b"b", 5, oneway=oneway, serialize_type=serialize_type)
    got_type, header, body = the_frame(b"".join(buffers))
    command = decode_header(got_type, header)
    assert (command.code, command.opaque, command.flag, command.ext, body) == (105, 5, 2 * oneway, {"topic": "t\1é"}, b"b")


def test_unusual_json_headers_are_decoded():
    text = b'{"code":15,"extFields":{"queueId":3,"b":true,"n":null,"s":"x"},"flag":0,"language":"CPP","version":333}\n'
    assert decode_header(JSON, text).ext == {"queueId": "3", "b": "true", "s": "x"}
    assert decode_header(JSON, b"{}").code == 0
    assert decode_header(JSON, b'{"code":1,"language":9,"extFields":null,"hello":[1]}').language == 9


@pytest.mark.parametrize(
    ("serialize_type", "header"),
    [
        (2, b"{}"),
        (JSON, b""),
        (JSON, b"[]"),
        (JSON, b"{"),
        (JSON, b'{"code":"x"}'),
        (JSON, b'{"extFields":[1]}'),
        (JSON, b'{"extFields":"text"}'),
        (JSON, b'{"code":1e400}'),
        (JSON, b"[" * 100_000),
        (JSON, b'{"extFields":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}"),
        (ROCKETMQ, b""),
        (ROCKETMQ, b"\0" * 16),
        (ROCKETMQ, b"\0" * 13 + b"\0\0\0\5" + b"\0\0\0\0"),
        (ROCKETMQ, b"\0" * 17 + struct.pack(">I", 9) + b"\0\1a\xff\xff\xff\xff"),
    ],
)
def test_invalid_headers_raise_frame_errors(serialize_type, header):
    with pytest.raises(FrameError):
        decode_header(serialize_type, header)


def test_both_json_encoders_write_the_same_response_fields():
    quick, general = [], []
    Response(0, SendMessageResponseHeader("id", 1, 2)).encode_into(quick, 9, JSON)
    Response(0, SendMessageResponseHeader("id", 1, 2), remark="r").encode_into(general, 9, JSON)
    one, other = (json.loads(the_frame(b"".join(out))[1]) for out in (quick, general))
    assert other.pop("remark") == "r"
    assert one == other
