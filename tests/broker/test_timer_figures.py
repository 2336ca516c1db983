"""What 5.x's tools and slaves ask about timers."""

import json

from running import ask, connected, create_topic, running_broker

from broker.timer_figures import timer_lines
from remoting.bodies import KVTable, decode_body
from remoting.codes import RequestCode
from remoting.headers.send import SendMessageRequestHeaderV2
from store.layout import TIMER_CHECKPOINT_STRUCT

KEYS = {"timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps"}


async def test_what_waits_is_told_by_topic_and_in_all():
    async with running_broker() as broker, connected() as client:
        for topic, count in (("T", 3), ("U", 1), ("Empty", 0)):
            await create_topic(client, broker, topic)
            for _ in range(count):
                header = SendMessageRequestHeaderV2("p", topic, "TBW102", 4, 0, 0, 0, 0, "TIMER_DELAY_SEC\x01600")
                assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")).code == 0
        metrics = json.loads((await ask(client, broker, RequestCode.GET_TIMER_METRICS)).body)
        assert {topic: row["count"] for topic, row in metrics["timingCount"].items()} == {"T": 3, "U": 1}
        table = decode_body(KVTable, (await ask(client, broker, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert table.keys() >= KEYS
        assert table["timerCongestNum"] == "4"
        checkpoint = (await ask(client, broker, RequestCode.GET_TIMER_CHECK_POINT)).body
        assert len(checkpoint) == TIMER_CHECKPOINT_STRUCT.size == 56


async def test_without_a_wheel_the_keys_are_those_of_an_idle_one():
    async with running_broker(store={"timer_wheel_enable": False}) as broker, connected() as client:
        lines = timer_lines(broker.services)
        assert lines.keys() == KEYS and set(lines.values()) == {"0", "0.0"}
        assert json.loads((await ask(client, broker, RequestCode.GET_TIMER_METRICS)).body)["timingCount"] == {}
        assert (await ask(client, broker, RequestCode.COUNT_DELAYED)).code == 0
