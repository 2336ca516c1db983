"""Hostile headers: private fields, numbers out of range, duplicate keys, no Unicode, answers that cannot be encoded."""

import json
import random
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.codes import JSON, ROCKETMQ
from pocketmq.remoting.command import HEADER_SIZE_MAX, Response, decode_header
from pocketmq.remoting.dispatch import Deferred, Dispatcher, Route, routes
from pocketmq.remoting.frame import FrameBuffer, FrameError
from pocketmq.remoting.header import NoHeader, ext_map
from pocketmq.remoting.header_keys import HeaderError
from pocketmq.remoting.headers.send import SendMessageResponseHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.runtime.peer_text import REMARK_SIZE_MAX
from tests.remoting.declared import REQUEST_HEADERS, BinaryHeader
from tests.remoting.strategies import headers
from tests.support.memory import traced_memory

FIELDS = {"extFields": {"topic": "t"}, "flag": 0, "language": "JAVA", "opaque": 5, "version": 401}
FIELDS_TEXT = json.dumps(FIELDS, separators=(",", ":"))[1:-1]
PRIVATE = ["~type", "~body", "~channel", "~raw", "body", "channel", "frame", "serialize_type", "raw_header"]


class Peer:
    """Connection that encodes answers like a real one."""

    def __init__(self):
        self.out, self.responses, self.closed = [], [], 0

    def respond(self, response, opaque, serialize_type):
        response.encode_into(self.out, opaque, serialize_type)

    def response_received(self, command):
        self.responses.append(command)

    def deferred_added(self):
        pass

    def deferred_removed(self):
        pass

    def close(self):
        self.closed += 1

    @property
    def answers(self):
        return [decode_header(kind, header) for kind, header, _ in FrameBuffer().feed(b"".join(self.out))]


def serve(text, handler=lambda services, request: Response(), declared=TopicRequestHeader, kind=JSON, body=b"the body"):
    peer = Peer()
    table = routes(Route(7, declared, handler), Route(310, declared, handler), Route(200050, declared, handler))
    Dispatcher(None, table).serve(peer, (kind, text, body), peer.out)
    return peer


def refused(text, kind=JSON):
    """Return the remark of the answer to a request whose header cannot be read."""
    (answer,) = serve(text, pytest.fail, kind=kind).answers
    assert (answer.code, answer.opaque, answer.flag) == (1, 5, 1)
    return answer.remark


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("value", ["300", '"aGVsbG8="', "[1]", "null"])
@pytest.mark.parametrize("start", ['"code":310', '"flag":0,"code":310'], ids=["quick", "general"])
def test_header_cannot_set_private_fields_of_the_request(name, value, start):
    seen = []
    fields = FIELDS_TEXT.replace('"flag":0,', "")
    tail = "" if "flag" in start else ',"flag":0'
    text = f'{{{start},{fields}{tail},"{name}":{value}}}'.encode()
    peer = serve(text, lambda services, request: seen.append(request) or Response())
    (request,) = seen
    assert (request.body, request.channel, request.serialize_type) == (b"the body", peer, JSON)
    assert request.ext() == {"topic": "t"}
    assert [answer.opaque for answer in peer.answers] == [5]
    command = decode_header(JSON, text)
    assert (command.body, command.serialize_type) == (b"", JSON)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("opaque", 2**31),
        ("opaque", -(2**31) - 1),
        ("code", 2**31),
        ("flag", 2**31),
        ("version", 2**40),
        ("language", 256),
        ("language", -1),
        ("language", "J" * 41),
    ],
)
@pytest.mark.parametrize("is_response", [False, True])
def test_number_out_of_range_is_an_error_of_its_request_alone(name, value, is_response):
    text = json.dumps({"code": 310, **FIELDS, "flag": int(is_response), name: value}, separators=(",", ":")).encode()
    if name == "opaque":
        with pytest.raises(FrameError, match="header is not a command in JSON"):
            serve(text)
    elif is_response and name != "flag":
        peer = serve(text)
        assert [(answer.code, answer.opaque) for answer in peer.responses] == [(1, 5)] and not peer.out
    else:
        assert "header is not a command in JSON" in refused(text)


TWICE = [
    '{"code":310,"code":7,%s}',
    '{"code":310,%s,"code":310}',
    '{"code":310,%s,"code" :7}',
    '{"code":310,%s,"code"\n:7}',
    '{"code":310,%s,"\\u0063ode":7}',
    '{"code":310,%s,"opaque":6}',
    '{"code":310,%s,"remark":"a","remark":"b"}',
    '{"code":310,%s,"other":1,"other":2}',
    '{"code":310,%s,"extFields":{"topic":"u"}}',
    '{"code":200050,%s,"code":7}',
    '{ "code":310,%s,"code":7}',
]
TWICE_IN_EXT = [
    '"topic":"t","topic":"u"',
    '"topic":"t","topic" :"u"',
    '"topic":"t","topic"\t:"u"',
    '"topic":"t","top\\u0069c":"u"',
    '"topic":"t","x":"1","x":"2"',
    '"topic":"t","AccessKey":"a","Signature":"s","AccessKey":"b"',
    '"topic":"a\\":","topic":"b"',
    '"topic":3,"topic":"t"',
]


@pytest.mark.parametrize("text", [row % FIELDS_TEXT for row in TWICE])
def test_json_header_with_duplicate_key_is_refused(text):
    if '"opaque":6' in text:
        with pytest.raises(FrameError, match="duplicate key"):
            serve(text.encode())
    else:
        assert "duplicate key" in refused(text.encode())
    with pytest.raises(HeaderError, match="duplicate key"):
        decode_header(JSON, text.encode())


@pytest.mark.parametrize("flag", [0, 1, 2])
@pytest.mark.parametrize("ext", TWICE_IN_EXT)
@pytest.mark.parametrize("start", ['"code":310,', '"code":7,', ""])
def test_json_header_with_duplicate_field_is_refused(start, ext, flag):
    text = f'{{{start}"extFields":{{{ext}}},"flag":{flag},"language":"JAVA","opaque":5,"version":401}}'.encode()
    if flag == 0:
        assert "duplicate key" in refused(text)
        return
    peer = serve(text, pytest.fail)
    assert [answer.opaque for answer in peer.responses] == ([5] if flag == 1 else [])
    assert not peer.out, "neither a response nor a oneway request is answered"


def test_binary_header_with_duplicate_field_is_refused():
    fixed = {"code": 310, "language": 0, "version": 401, "opaque": 5, "flag": 0}
    entries = [{"key": "topic", "value": "t"}, {"key": "x", "value": ""}, {"key": "topic", "value": "u"}]
    text = BinaryHeader.build({"fixed": fixed, "remark": "", "ext": entries})
    assert refused(text, ROCKETMQ) == "duplicate key 'topic' in the header"
    assert "runs over the end" in refused(text[:-2], ROCKETMQ)


# Bytes of a header that are not valid Unicode, and how Apache's servers read them.
NOT_UNICODE = [
    (b"\xd6\xd0\xce\xc4", "\ufffd" * 4),  # GBK, of C++ and PHP clients
    (b"\xe4\xb8", "\ufffd"),
    (b"\\ud83d", "?"),  # half a character, of Node and Python
    (b"\\ud83dx", "?x"),
    (b"\\\\\\udc00\\ud800\\ude00\\u00e9", "\\?\U00010200\u00e9"),
    (b"\\\\ud800", "\\ud800"),
]


@pytest.mark.parametrize(("data", "text"), NOT_UNICODE)
@pytest.mark.parametrize("start", [b'"code":310,', b'"opaque":5,"code":310,'], ids=["quick", "general"])
@pytest.mark.parametrize("name", [b"topic", b"other"])
def test_text_that_is_not_valid_unicode_is_read_with_replacements(data, text, start, name):
    seen = []
    ext = b'"topic":"t",' if name == b"other" else b""
    tail = b"" if b"opaque" in start else b',"opaque":5'
    header = b'{%b"extFields":{%b"%b":"%b"},"flag":0,"language":"CPP","version":317%b}' % (start, ext, name, data, tail)
    (answer,) = serve(
        header, lambda services, request: seen.append((request.header.topic, request.ext())) or Response()
    ).answers
    assert (answer.code, answer.opaque) == (0, 5)
    assert seen == [(text if name == b"topic" else "t", {"topic": "t"} | {name.decode(): text})]


def test_binary_text_that_is_not_utf_8_is_read_with_replacements():
    seen = []
    fixed = {"code": 310, "language": 0, "version": 401, "opaque": 5, "flag": 0}
    text = BinaryHeader.build(
        {"fixed": fixed, "remark": "", "ext": [{"key": "topic", "value": "t"}, {"key": "x", "value": "????"}]}
    )
    text = text.replace(b"????", b"\xd6\xd0\xce\xc4")
    (answer,) = serve(text, lambda services, request: seen.append(request.ext()) or Response(), kind=ROCKETMQ).answers
    assert (answer.code, seen) == (0, [{"topic": "t", "x": "\ufffd" * 4}])


@pytest.mark.parametrize("name", ["language", "version", "flag", "remark", "serializeTypeCurrentRPC"])
def test_null_counts_as_absent(name):
    text = json.dumps({"code": 310, **FIELDS, name: None}, separators=(",", ":")).encode()
    assert [(answer.code, answer.opaque) for answer in serve(text).answers] == [(0, 5)]


@pytest.mark.parametrize(
    "broken", [b'"x":"\xd6\\"', b'"x":nul', b'"x":{', b'"language":{}', b'"extFields":[]', b'"x":' + b"[" * 3000]
)
def test_broken_json_is_an_error_of_its_request_alone(broken):
    assert "header is not a command in JSON" in refused(b'{"code":310,"opaque":5,' + broken + b"}")


@pytest.mark.parametrize("text", [b"", b"hello", b"{}x", b'{"code":310,"opaque":x}', b'{"code":310,"opaque":5,"opaque":6}'])
def test_header_without_an_opaque_closes_the_connection(text):
    with pytest.raises(FrameError):
        serve(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"code":310,"extFields":{"topic":"a\\":\\"b\\":c : d"},"flag":0,"language":"JAVA","opaque":5,"version":401}',
        '{"code":310,"extFields":{"topic":"t","a":"1","b":"2"},"flag":0,"language":"JAVA","opaque":5,"version":401}\n',
        '{ "code" : 310 , "extFields" : { "topic" : "t" } , "flag":0, "language":"CPP", "opaque":5, "version":401 }',
        '{"code":310,"extFields":{"topic":"t"},"flag":0,"language":"JAVA","opaque":5,"version":401,"x":{"code":1,"y":[{"code":2}]}}',
        '{"code":310,"extFields":{"topic":"t"},"flag":0,"language":"GO","opaque":5,"remark":"","version":317}',
        '{"code":310,"extFields":{"topic":7,"n":null},"opaque":5}',
    ],
)
def test_unusual_headers_without_duplicates_are_served(text):
    (answer,) = serve(text.encode()).answers
    assert (answer.code, answer.opaque) == (0, 5)


MORE_KEYS = st.dictionaries(st.text('ab\\": ', max_size=3), st.text('":x '))


@pytest.mark.parametrize("declared", REQUEST_HEADERS, ids=lambda declared: declared.__name__)
@given(data=st.data())
def test_duplicate_of_any_key_is_refused(declared, data):
    ext = ext_map(data.draw(headers(declared))) | data.draw(MORE_KEYS)
    chance = random.Random(data.draw(st.integers(0, 2**32)))  # far cheaper than drawing each order and choice
    rows = [("flag", 0), ("language", "JAVA"), ("opaque", 5), ("version", 401), ("serializeTypeCurrentRPC", "JSON")]
    colon, comma = chance.choice([":", " : "]), chance.choice([",", " ,\n"])

    def text_of(rows):
        return comma.join(
            json.dumps(key) + colon + (value if key == "extFields" else json.dumps(value)) for key, value in rows
        )

    def shuffled(rows):
        rows = list(rows)
        return chance.sample(rows, len(rows))

    ext_rows = shuffled(ext.items())
    whole = [("code", 310), *shuffled([*rows, ("extFields", "{" + text_of(ext_rows) + "}")])]
    table = routes(Route(310, declared, lambda services, request: Response()))
    peer = Peer()
    Dispatcher(None, table).serve(peer, (JSON, f"{{{text_of(whole)}}}".encode(), b""), peer.out)
    assert [answer.code for answer in peer.answers] == [0]
    if ext_rows and chance.random() < 0.5:
        again = text_of([*ext_rows, chance.choice(ext_rows)])
        whole = [(key, "{" + again + "}" if key == "extFields" else value) for key, value in whole]
    else:
        whole.append(chance.choice(whole))
    with pytest.raises(HeaderError, match="duplicate key"):
        decode_header(JSON, f"{{{text_of(whole)}}}".encode())
    with suppress(FrameError):  # if the opaque is the duplicate
        Dispatcher(None, table).serve(peer, (JSON, f"{{{text_of(whole)}}}".encode(), b""), peer.out)
    assert [answer.code for answer in peer.answers[1:]] in ([], [1])


def broken():
    return Response(10**6, SendMessageResponseHeader("id", "no number", 1))


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@pytest.mark.parametrize("bad", [broken, lambda: Response(remark="\ud800")])
def test_answer_that_cannot_be_encoded_is_an_error_of_its_request_alone(kind, bad, caplog):
    peers = [Peer() for _ in range(5)]
    held = []
    for number, peer in enumerate(peers):
        deferred = Deferred()
        deferred.bind(peer, number, kind)
        held.append(deferred)
    for number, deferred in enumerate(held):
        deferred.complete(bad() if number == 2 else Response(remark="here"))
    assert [[(answer.code, answer.opaque) for answer in peer.answers] for peer in peers] == [
        [(int(number == 2), number)] for number in range(5)
    ]
    assert "cannot be encoded" in peers[2].answers[0].remark and "cannot be encoded" in caplog.text
    assert (
        "cannot be encoded"
        in serve(f'{{"code":310,{FIELDS_TEXT}}}'.encode(), lambda services, request: bad()).answers[0].remark
    )


def test_answer_with_too_large_header_is_an_error_with_explanation():
    out = []
    Response(0, SendMessageResponseHeader("\1" * (HEADER_SIZE_MAX // 4), 1, 2)).encode_into(out, 9, JSON)
    ((kind, header, _),) = FrameBuffer().feed(b"".join(out))
    answer = decode_header(kind, header)
    assert (answer.code, answer.opaque) == (1, 9)
    assert f"the limit is {HEADER_SIZE_MAX}" in answer.remark


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_remark_quotes_only_part_of_long_values(kind):
    out = []
    Response(1, remark="topic[" + "t" * 1_000_000 + "] not exist").encode_into(out, 9, kind)
    ((kind, header, _),) = FrameBuffer().feed(b"".join(out))
    remark = decode_header(kind, header).remark
    assert len(remark) <= REMARK_SIZE_MAX
    assert remark.startswith("topic[ttt") and remark.endswith("ttt] not exist") and "999617 characters left out" in remark


def test_errors_quote_only_part_of_a_header():
    long = "9" * 100_000
    text = f'{{"code":310,{FIELDS_TEXT},"{long}":1,"{long}":2}}'
    assert len(refused(text.encode())) < 300
    (answer,) = serve(f'{{"code":310,{FIELDS_TEXT}}}'.encode(), lambda services, request: {}[long]).answers
    assert len(answer.remark) < 300


def test_remarks_of_any_length_do_not_leak_memory():
    def answer(number):
        out = []
        Response(1, remark=f"{number}" + "x" * 300_000).encode_into(out, 9, JSON)

    answer(0)
    tracemalloc.start()
    for number in range(60):
        answer(number)
    left = traced_memory()
    tracemalloc.stop()
    assert left < 300_000


def test_header_without_declared_class_is_still_decoded():
    assert len(serve(b'{"code":310}', declared=NoHeader).answers) == 1


def many_fields(count, kind):
    if kind == ROCKETMQ:
        fixed = {"code": 310, "language": 0, "version": 401, "opaque": 5, "flag": 0}
        entries = [{"key": f"f{i}", "value": ""} for i in range(count)]
        return BinaryHeader.build({"fixed": fixed, "remark": "", "ext": [*entries, {"key": "topic", "value": "t"}]})
    ext = {f"f{i}": "" for i in range(count)} | {"topic": "t"}
    return json.dumps({"code": 310, **FIELDS, "extFields": ext}).encode()


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_number_of_header_keys_is_limited(kind):
    assert [answer.code for answer in serve(many_fields(4_000, kind), kind=kind).answers] == [0]
    assert "more than 8192 keys" in refused(many_fields(9_000, kind), kind)


@pytest.mark.parametrize("odd", ['"x":[%s]', '"x":"\\":",  "y":[%s]'])
def test_number_of_keys_in_nested_objects_is_limited(odd):
    nested = ",".join(['{"a" :1}'] * 9_000)
    assert "more than 8192 keys" in refused(f'{{"code":310,{FIELDS_TEXT},{odd % nested}}}'.encode())


def test_colons_in_a_long_text_are_not_counted_as_keys():
    text = {"code": 310, **FIELDS, "extFields": {"topic": "t", "properties": '{"a":1}' * 2_000 + "::" * 9_000}}
    assert [answer.code for answer in serve(json.dumps(text).encode()).answers] == [0]
