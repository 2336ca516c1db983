"""Dispatch of frames to handlers and encoding of answers, without sockets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.codes import JSON, ROCKETMQ
from pocketmq.remoting.command import Response, decode_header, encode_request
from pocketmq.remoting.dispatch import Deferred, Dispatcher, RemotingError, Route, routes
from pocketmq.remoting.frame import FrameBuffer, FrameError
from pocketmq.remoting.header import NoHeader, ext_map
from pocketmq.remoting.headers.topic import TopicRequestHeader
from tests.remoting.declared import HEADER_OF_CODE, REQUEST_HEADERS
from tests.remoting.recordings import all_recorded
from tests.remoting.strategies import headers


class FakeChannel:
    """Channel that records the calls of its methods."""

    def __init__(self):
        self.answers, self.responses, self.deferred = [], [], 0

    def respond(self, response, opaque, serialize_type):
        self.answers.append((response, opaque, serialize_type))

    def response_received(self, command):
        self.responses.append(command)

    def deferred_added(self):
        self.deferred += 1

    def deferred_removed(self):
        self.deferred -= 1


def answers(out):
    return [decode_header(kind, header) for kind, header, _ in FrameBuffer().feed(b"".join(out))]


def serve(handler, header=NoHeader, *, code=7, text=None, body=b"", kind=JSON, channel=None, refused=frozenset()):
    """Return the answers to one frame whose header is `text`."""
    out = []
    dispatcher = Dispatcher("services", routes(Route(code, header, handler)), refused)
    dispatcher.serve(channel or FakeChannel(), (kind, text, body), out)
    return answers(out)


def seen_by(declared, kind, text):
    """Return the request that the handler receives."""
    seen = []
    serve(lambda services, request: seen.append(request), declared, text=text, kind=kind, body=b"the body")
    (request,) = seen
    assert request.body == b"the body"
    return (request.header, request.code, request.flag, request.opaque, request.language, request.version, request.remark), (
        request.ext()
    )


@pytest.mark.parametrize("declared", REQUEST_HEADERS, ids=lambda declared: declared.__name__)
@given(data=st.data(), flag=st.sampled_from([0, 2]), opaque=st.integers(-(2**31), 2**31 - 1))
def test_fast_and_general_decoding_give_the_same_request(declared, data, flag, opaque):
    header = data.draw(headers(declared))
    ext = ext_map(header) | {"ns": "extra"}
    fields = {"extFields": ext, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 401}
    quick = json.dumps({"code": 7, **fields}, separators=(",", ":")).encode()
    general = json.dumps({**fields, "code": 7}).encode()
    assert seen_by(declared, JSON, quick) == seen_by(declared, JSON, general)
    (got_header, *_), got_ext = seen_by(declared, JSON, quick)
    assert (got_header, got_ext) == (header, ext)
    binary = b"".join(encode_request(7, header, b"", opaque, oneway=flag == 2, serialize_type=ROCKETMQ))[8:]
    (got_header, code, got_flag, got_opaque, *_), _ = seen_by(declared, ROCKETMQ, binary)
    assert (got_header, code, got_flag, got_opaque) == (header, 7, flag, opaque)


def test_recorded_requests_decode_the_same_both_ways():
    met = set()
    for row in all_recorded():
        declared = HEADER_OF_CODE.get(row.read["code"])
        if declared is None or row.read["flag"] & 1:
            continue
        ((kind, text, _),) = FrameBuffer().feed(row.data)
        got = []
        table = routes(Route(row.read["code"], declared, lambda services, request: services.append(request)))
        Dispatcher(got, table).serve(FakeChannel(), (kind, text, b""), [])
        command = decode_header(kind, text)
        assert got[0].header == command.header(declared)
        assert (
            ext_map(got[0].header).items()
            >= {name: value for name, value in command.ext.items() if name in declared.__struct_encode_fields__}.items()
        )
        assert (got[0].opaque, got[0].version, got[0].language) == (command.opaque, command.version, command.language)
        met.add(declared)
    assert met == set(HEADER_OF_CODE.values())


def test_unknown_code_is_answered_with_3():
    (answer,) = serve(None, code=8, text=b'{"code":4711,"opaque":5}')
    assert (answer.code, answer.opaque, answer.remark) == (3, 5, " request type 4711 not supported")


def test_code_refused_at_a_port_is_answered_as_unknown():
    (answer,) = serve(None, text=b'{"code":7,"opaque":5}', refused=frozenset({7}))
    assert answer.code == 3


@pytest.mark.parametrize("text", [b'{"code":7,"opaque":5,"extFields":{}}', b'{"opaque":5,"code":7}'])
def test_missing_field_is_named_and_answered_with_1(text):
    (answer,) = serve(None, TopicRequestHeader, text=text)
    assert (answer.code, answer.opaque) == (1, 5)
    assert "topic" in answer.remark and "request code 7" in answer.remark


@pytest.mark.parametrize("text", [b'{"code":4711,"flag":2}', b'{"code":7,"flag":2}'])
def test_oneway_request_is_never_answered(text):
    def fails(services, request):
        raise RemotingError(1, "no")

    assert serve(fails, TopicRequestHeader, text=text) == []
    assert serve(fails, text=text) == []
    assert serve(lambda services, request: Response(), text=text) == []


def test_refusal_becomes_an_answer_with_its_code():
    def refuse(services, request):
        raise RemotingError(17, "no such topic")

    (answer,) = serve(refuse, text=b'{"code":7,"opaque":5,"extFields":{}}')
    assert (answer.code, answer.remark, answer.flag) == (17, "no such topic", 1)


def test_exception_of_a_handler_is_answered_with_1_and_the_next_request_is_served():
    def fails_once(services, request):
        if request.opaque == 5:
            raise KeyError("oops")
        return Response()

    out = []
    dispatcher = Dispatcher(None, routes(Route(7, NoHeader, fails_once)))
    for opaque in (5, 6):
        dispatcher.serve(FakeChannel(), (JSON, b'{"code":7,"opaque":%d,"extFields":{}}' % opaque, b""), out)
    failed, served = (decode_header(kind, header) for kind, header, _ in FrameBuffer().feed(b"".join(out)))
    assert (failed.code, failed.remark) == (1, "KeyError: 'oops'")
    assert (served.code, served.opaque) == (0, 6)


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_answer_has_the_serialisation_of_its_request(kind):
    text = b"".join(encode_request(7, None, b"", 5, serialize_type=kind))[8:]
    out = []
    Dispatcher(None, routes(Route(7, NoHeader, lambda s, r: Response()))).serve(FakeChannel(), (kind, text, b""), out)
    assert FrameBuffer().feed(b"".join(out))[0][0] == kind


def test_response_is_not_dispatched_even_if_its_code_is_routed():
    channel = FakeChannel()
    assert serve(None, text=b'{"code":7,"flag":1,"opaque":5,"extFields":{}}', channel=channel, body=b"x") == []
    assert [(command.opaque, command.body) for command in channel.responses] == [(5, b"x")]


def test_invalid_header_without_opaque_closes_the_connection():
    with pytest.raises(FrameError):
        serve(None, text=b'{"code":7,"remark":x}')


def test_deferred_answers_later_and_only_once():
    channel, deferred, response = FakeChannel(), Deferred(), Response(remark="late")
    assert serve(lambda s, r: deferred, text=b'{"code":7,"opaque":5,"extFields":{}}', channel=channel) == []
    assert channel.deferred == 1
    deferred.complete(response)
    deferred.complete(Response(1))
    assert (channel.deferred, channel.answers) == (0, [(response, 5, JSON)])


def test_deferred_completed_inside_the_handler_answers_at_once():
    def handler(services, request):
        deferred = Deferred()
        deferred.complete(Response(remark="already"))
        return deferred

    channel = FakeChannel()
    serve(handler, text=b'{"code":7,"opaque":5,"extFields":{}}', channel=channel)
    assert channel.deferred == 0
    assert [response.remark for response, *_ in channel.answers] == ["already"]


@pytest.mark.parametrize("is_there", [True, False])
def test_deferred_result_can_go_to_a_function(is_there):
    deferred, response, received = Deferred(), Response(), []
    if is_there:
        deferred.complete(response)
    deferred.hand_to(received.append)
    assert received == ([response] if is_there else [])
    deferred.complete(response)
    assert received == [response]


def test_code_routed_twice_is_an_error():
    row = Route(7, NoHeader, lambda s, r: None)
    with pytest.raises(ValueError, match="7 is routed twice"):
        routes(row, [row])
