"""Timer figures for 5.x's tools and slaves."""

import json

from pocketmq.broker.figures.timer_figures import timer_lines
from pocketmq.remoting.bodies import KVTable, decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.format.layout import TIMER_CHECKPOINT_STRUCT
from tests.broker.running import ask, connected, create_topic, running_broker, until
from tests.broker.sampling import sample

KEYS = {"timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps"}


async def test_waiting_timers_are_counted_by_topic_and_in_total():
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


async def test_timer_keys_without_the_wheel_equal_those_of_an_idle_wheel():
    async with running_broker(store={"timer_wheel_enable": False}) as broker, connected() as client:
        lines = timer_lines(broker.services)
        assert lines.keys() == KEYS and set(lines.values()) == {"0", "0.0"}
        assert json.loads((await ask(client, broker, RequestCode.GET_TIMER_METRICS)).body)["timingCount"] == {}
        assert (await ask(client, broker, RequestCode.COUNT_DELAYED)).code == 0


async def test_delivery_rate_and_failed_puts_are_reported():
    clock = VirtualClock()
    async with running_broker(clock=clock) as broker, connected() as client:
        services = broker.services
        await create_topic(client, broker, "T")
        header = SendMessageRequestHeaderV2("p", "T", "TBW102", 4, 0, 0, 0, 0, "TIMER_DELAY_SEC\x015")
        for _ in range(20):
            assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")).code == 0
        services.store.commit_log.refuse("test", "the disk is full")
        assert (
            await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")
        ).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert services.stats.put_failed_times == 1
        clock.advance(5000)
        await until(lambda: services.stats.put_failed_times > 1)  # by the failed delivery
        services.store.commit_log.refuse("test", None)
        clock.advance(5000)
        await until(lambda: services.store.max_offset("T", 0) == 20)
        sample(services.stats)
        assert float(timer_lines(services)["timerDequeueTps"]) == 2.0  # the first sample covers 10 s
        table = decode_body(KVTable, (await ask(client, broker, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert table["putMessageFailedTimes"] == str(services.stats.put_failed_times)
