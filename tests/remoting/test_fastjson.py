"""Reading and writing of fastjson's JSON dialect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import BrokerData, HeartbeatData, TopicRouteData, decode_body, encode_body
from tests.golden.linear import assert_linear

TABLE = [
    (b'{"brokerAddrs":{0:"a:1",1:"b:2"}}', {"brokerAddrs": {"0": "a:1", "1": "b:2"}}),
    (b'{ -1 : 2 , "x":"{0:1,2:3}" }', {"-1": 2, "x": "{0:1,2:3}"}),
    (
        b'{"offsetTable":{{"brokerName":"ba","queueId":0,"topic":"T"}:{"maxOffset":5}}}',
        {"offsetTable": {'{"brokerName":"ba","queueId":0,"topic":"T"}': {"maxOffset": 5}}},
    ),
    (
        b'{"t":{ {"topic":"a{b","queueId":1,"brokerName":"n"} :1,{"brokerName":"n","queueId":2,"topic":"x"}:2}}',
        {"t": {'{"brokerName":"n","queueId":1,"topic":"a{b"}': 1, '{"brokerName":"n","queueId":2,"topic":"x"}': 2}},
    ),
    ('{"名":"值"}'.encode(), {"名": "值"}),
]


@pytest.mark.parametrize(("text", "value"), TABLE)
def test_json_dialect_is_read(text, value):
    assert fastjson.loads(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b"{1}", b'{"a":}', b'{{"a":1}', b"\xff", b"{0:1}}", b'{{}:{"a"}}'])
def test_invalid_text_is_a_value_error(text):
    with pytest.raises(ValueError):
        fastjson.loads(text)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9) | st.text(st.sampled_from('{}",:\\0'))
    )
)
def test_strict_json_survives_a_round_trip(value):
    assert fastjson.loads(fastjson.dumps(value)) == value


def test_map_with_object_keys_survives_a_round_trip():
    key = fastjson.object_key("b-a", 3, 'T"1')
    assert key == b'{"brokerName":"b-a","queueId":3,"topic":"T\\"1"}'
    assert fastjson.loads(fastjson.dumps({"m": fastjson.object_map([(key, {"x": 1})])})) == {"m": {key.decode(): {"x": 1}}}


def test_encoded_bodies_omit_none_and_sort_their_fields():
    route = TopicRouteData([BrokerData("b", "c", {"0": "a:1"})], [])
    text = encode_body(route)
    assert text == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1"},"brokerName":"b","cluster":"c"}],"filterServerTable":{},"queueDatas":[]}'
    )
    assert decode_body(TopicRouteData, text) == route
    assert decode_body(TopicRouteData, text.replace(b'"0"', b"0")) == route


def test_heartbeat_may_have_nulls_numbers_as_text_and_unknown_fields():
    consumer = b'{"groupName":"g","consumeType":1,"unitMode":"false","x":null}'
    body = b'{"clientID":"c","consumerDataSet":[%b],"y":[{}],"producerDataSet":null}' % consumer
    heartbeat = decode_body(HeartbeatData, body)
    assert (heartbeat.client_id, heartbeat.consumer_data_set[0].group_name) == ("c", "g")
    assert heartbeat.producer_data_set == []


HOSTILE = {
    "unterminated string": lambda n: b'{"' + b'\\"' * (n // 2),
    "unterminated strings": lambda n: b'{{"' * (n // 3),
    "strings with an object key each": lambda n: b'{{"a":"' * (n // 7),
    "braces": lambda n: b"{" * n,
    "braces and commas": lambda n: b"{,{" * (n // 3),
    "blanks": lambda n: b"{" + b" " * n,
    "braces and blanks": lambda n: b"{ " * (n // 2),
    "digits": lambda n: b"{" + b"1" * n,
    "numbers without colon": lambda n: b"{1 " * (n // 3),
    "zeros": lambda n: b'{"' * (n // 3) + b'\0"',
    "unquoted keys": lambda n: b"{" + b"1:1," * (n // 4),
    "object keys": lambda n: b"{" + b"{}:1," * (n // 5) + b"1:1}",
    "lists": lambda n: b"{1:" + b"[" * n,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_parsing_time_of_loose_json_is_proportional_to_its_length(kind):
    assert_linear(fastjson.loads, HOSTILE[kind], fastjson.LOOSE_SIZE_MAX // 4 - 8)


@pytest.mark.parametrize("unit", [b"\\ud800", b"\\ud800\\udc00", b"\xd6", b"\\\\", b"\\u00e9", b"\\u"])
def test_time_to_repair_text_is_linear(unit):
    assert_linear(lambda text: fastjson.valid_unicode(bytes(text)), lambda count: b'{"a":"' + unit * count, 20_000)


def test_body_that_is_not_valid_unicode_is_read_with_replacements():
    subscription = b'{"topic":"t","subString":"\xd6\xd0||\\udc00"}'
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[%b]}]}' % subscription
    (consumer,) = decode_body(HeartbeatData, body).consumer_data_set
    assert consumer.subscription_data_set[0].sub_string == "\ufffd\ufffd||?"
    assert fastjson.loads(b'{0:"\xd6"}') == {"0": "\ufffd"}


def test_only_loose_json_has_a_size_limit():
    size = fastjson.LOOSE_SIZE_MAX
    with pytest.raises(ValueError, match=f"at most {size} bytes, not {size + 1}"):
        fastjson.loads(b"{1:1" + b" " * (size - 4) + b"}")
    assert fastjson.loads(b'{"1":1' + b" " * size + b"}") == {"1": 1}


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 50_000, b"{1:" * 5_000, b'{"a":' * 900 + b"null" + b"}" * 900])
@pytest.mark.parametrize("read", [fastjson.loads, lambda text: decode_body(HeartbeatData, text)], ids=["loads", "body"])
def test_deep_nesting_is_read_or_a_value_error(read, text):
    try:
        read(text)
    except ValueError as error:
        assert len(str(error)) < 300


def test_body_above_the_limit_is_refused_before_parsing():
    with pytest.raises(ValueError, match="it has 40 bytes, the limit is 39"):
        decode_body(HeartbeatData, b" " * 40, 39)
