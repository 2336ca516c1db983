"""A slave takes from its master's tables only what a client could have put there."""

from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.pop_bodies import MessageRequestMode
from tests.broker.running import ask, connected, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE

BAD_TOPICS = {
    "Many": TopicConfig("Many", 2**70, 4),
    "Unreadable": TopicConfig("Unreadable", 4, -1),
    "Perm": TopicConfig("Perm", 4, 4, 99),
    "Flag": TopicConfig("Flag", 4, 4, 6, topic_sys_flag=2**40),
    "a\nb": TopicConfig("a\nb"),
    "\x1b[2Jcls": TopicConfig("\x1b[2Jcls"),
    "../../../victim": TopicConfig("../../../victim"),
    "Other": TopicConfig("../x"),
    "n" * 300: TopicConfig("n" * 300),
}
BAD_GROUPS = {
    "Retries": SubscriptionGroupConfig("Retries", retry_queue_nums=2**31 - 1),
    "Broker": SubscriptionGroupConfig("Broker", broker_id=2**70),
    "g\nh": SubscriptionGroupConfig("g\nh"),
    "../g": SubscriptionGroupConfig("../g"),
}
BAD_OFFSETS: dict[str, dict[int, int]] = {
    "Good@G": {-1: 5, 2: -7, 3: 2**63, 2**40: 1}, "a\nb@G": {0: 1}, "Good@g\nh": {0: 1}, "Nothing": {0: 1},
}  # fmt: skip


def _spoil(master: Broker) -> None:
    """Put rows into the master's tables that its own checks refuse."""
    services = master.services
    for name, topic in BAD_TOPICS.items():
        services.topics.table.put(name, topic)
    for name, group in BAD_GROUPS.items():
        services.groups.table.put(name, group)
    for key, offsets in BAD_OFFSETS.items():
        services.offsets.table.setdefault(key, {}).update(offsets)
    services.request_modes.table["Good"] = {
        "G": MessageRequestMode("Good", "G", "POP", 3),
        "h": MessageRequestMode("Good", "h", "PUSH"),
        "i": MessageRequestMode("Good", "i", "POP", 2**70),
        "j": MessageRequestMode("Else", "j", "POP"),
    }
    services.schedule.begin_at(2, 7)
    services.schedule.begin_at(-3, 7)
    services.schedule.begin_at(4, -7)
    services.schedule.begin_at(2**40, 7)


async def test_slave_leaves_out_what_no_client_could_create(caplog: Any) -> None:
    async with running_namesrv() as ns, running_broker(ns) as master:
        master.services.topics.update(TopicConfig("Good", 4, 4))
        master.services.groups.find("G")
        master.services.offsets.commit("G", "Good", 0, 1)
        _spoil(master)
        async with running_broker(ns, store=SLAVE, broker_id=1) as slave:
            services = slave.services
            await until(lambda: services.offsets.query("G", "Good", 0) == 1)
            await until(lambda: services.schedule.next_offset(2) == 7)
            assert "Good" in services.topics.table and not BAD_TOPICS.keys() & services.topics.table.keys()
            assert "G" in services.groups.table and not BAD_GROUPS.keys() & services.groups.table.keys()
            assert services.offsets.table == {"Good@G": {0: 1}}
            assert services.request_modes.table == {"Good": {"G": MessageRequestMode("Good", "G", "POP", 3)}}
            assert services.schedule.encode()["offsetTable"] == {2: 7}
    assert f"readQueueNums={2**70} of topic Many: expected 0 to 65536" in caplog.text
    assert "perm=99 of topic Perm: expected 0 to 15" in caplog.text


async def test_slave_names_the_limit_that_leaves_out_topics_and_groups(caplog: Any) -> None:
    async with running_namesrv() as ns, running_broker(ns) as master:
        for number in range(60):
            master.services.topics.update(TopicConfig(f"T{number}", 1, 1))
            master.services.groups.find(f"G{number}")
        limits: dict[str, Any] = {"max_topics": 20, "max_subscription_groups": 20}
        async with running_broker(ns, store=SLAVE, broker_id=1, **limits) as slave:
            await until(lambda: "maxSubscriptionGroups allows 20, the master has" in caplog.text)
            assert 20 <= len(slave.services.topics.table) < 50
            assert len(slave.services.groups.table) == 20
    assert "maxTopics allows " in caplog.text


@pytest.mark.parametrize("bad", BAD_GROUPS.values(), ids=lambda group: repr(group.group_name))
async def test_client_cannot_create_such_a_group_either(bad: SubscriptionGroupConfig) -> None:
    async with connected() as client, running_broker() as broker:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        answer = await ask(client, broker, code, None, encode_body(bad))
        assert answer.code == ResponseCode.SYSTEM_ERROR, answer
        assert bad.group_name not in broker.services.groups.table
