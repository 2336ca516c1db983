"""The JSON dialect of the peers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import fastjson
from remoting.bodies import BrokerData, HeartbeatData, TopicRouteData, decode_body, encode_body

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
def test_the_dialect_is_read(text, value):
    assert fastjson.loads(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b"{1}", b'{"a":}', b'{{"a":1}', b"\xff", b"{0:1}}", b'{{}:{"a"}}'])
def test_what_is_neither_is_a_value_error(text):
    with pytest.raises(ValueError):
        fastjson.loads(text)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9) | st.text(st.sampled_from('{}",:\\0'))
    )
)
def test_strict_json_of_any_text_comes_back(value):
    assert fastjson.loads(fastjson.dumps(value)) == value


def test_a_map_with_object_keys_comes_back():
    key = fastjson.object_key("b-a", 3, 'T"1')
    assert key == b'{"brokerName":"b-a","queueId":3,"topic":"T\\"1"}'
    assert fastjson.loads(fastjson.dumps({"m": fastjson.object_map([(key, {"x": 1})])})) == {"m": {key.decode(): {"x": 1}}}


def test_bodies_leave_none_out_and_sort_their_fields():
    route = TopicRouteData([BrokerData("b", "c", {"0": "a:1"})], [])
    text = encode_body(route)
    assert text == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1"},"brokerName":"b","cluster":"c"}],"filterServerTable":{},"queueDatas":[]}'
    )
    assert decode_body(TopicRouteData, text) == route
    assert decode_body(TopicRouteData, text.replace(b'"0"', b"0")) == route


def test_heartbeats_with_nulls_numbers_as_text_and_unknown_fields():
    consumer = b'{"groupName":"g","consumeType":1,"unitMode":"false","x":null}'
    body = b'{"clientID":"c","consumerDataSet":[%b],"y":[{}],"producerDataSet":null}' % consumer
    heartbeat = decode_body(HeartbeatData, body)
    assert (heartbeat.client_id, heartbeat.consumer_data_set[0].group_name) == ("c", "g")
    assert heartbeat.producer_data_set == []
