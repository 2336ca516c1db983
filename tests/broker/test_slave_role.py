"""A slave refuses requests that change its copies, delivers no delayed messages, and keeps the tables of its master."""

import asyncio
import json
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig, check
from pocketmq.broker.ha.slave_role import REFUSED
from pocketmq.broker.handlers import ROUTES
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.config import check as check_namesrv
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.consumer import DeleteSubscriptionGroupRequestHeader
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.runtime.clock import SystemClock, VirtualClock
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.broker.running import ask, connected, running_broker, until

SLAVE: dict[str, Any] = {"broker_role": "SLAVE"}
SEND = SendMessageRequestHeaderV2("pg", "T", "TBW102", 4, 0, 0, 0, 0)


def delayed(level: int) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2("pg", "T", "TBW102", 4, 0, 0, 0, 0, properties=f"DELAY\x01{level}\x02")


@pytest.mark.parametrize(
    ("code", "header", "body", "expected"),
    [
        (RequestCode.SEND_MESSAGE_V2, SEND, b"x", ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.SEND_BATCH_MESSAGE, SEND, b"x", ResponseCode.SERVICE_NOT_AVAILABLE),
        (
            RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(0, "g", 3), b"",
            ResponseCode.SYSTEM_ERROR,
        ),
        (
            RequestCode.END_TRANSACTION, EndTransactionRequestHeader("pg", 0, 0, 8, msg_id="x"), b"",
            ResponseCode.SLAVE_NOT_AVAILABLE,
        ),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("T", "TBW102", 4, 4, 6, "SINGLE_TAG"), b"",
            ResponseCode.SYSTEM_ERROR,
        ),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"g"}', ResponseCode.SYSTEM_ERROR),
        (
            RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader("g"), b"",
            ResponseCode.SYSTEM_ERROR,
        ),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader("g", "T", timestamp=0, is_force=True), b"",
            ResponseCode.SYSTEM_ERROR,
        ),
    ],
)  # fmt: skip
async def test_slave_refuses_changes_with_apache_s_code(code: int, header: Any, body: bytes, expected: int) -> None:
    async with running_broker(store=SLAVE, broker_id=1) as slave, connected() as client:
        before = slave.services.topics.version(), set(slave.services.topics.table), set(slave.services.groups.table)
        answer = await ask(client, slave, code, header, body)
        assert (answer.code, slave.services.store.max_physical_offset) == (expected, 0)
        assert answer.remark and "slave" in answer.remark.lower()
        assert before == (
            slave.services.topics.version(), set(slave.services.topics.table), set(slave.services.groups.table),
        )  # fmt: skip


def test_every_refused_code_is_served_by_masters() -> None:
    assert set(ROUTES) >= set(REFUSED)


async def test_deletion_of_a_topic_at_a_slave_succeeds_without_effect() -> None:
    async with running_broker(store=SLAVE, broker_id=1) as slave, connected() as client:
        slave.services.topics.table["T"] = slave.services.topics.table["TBW102"]
        answer = await ask(client, slave, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader("T"))
        assert answer.code == ResponseCode.SUCCESS and "T" in slave.services.topics.table


async def test_heartbeat_of_a_new_group_does_not_change_the_slave_s_tables() -> None:
    consumer = {
        "groupName": "new", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [], "unitMode": False,
    }  # fmt: skip
    body = json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
    async with running_broker(store=SLAVE, broker_id=1) as slave, connected() as client:
        services = slave.services
        before = services.topics.version(), services.groups.version()
        assert (await ask(client, slave, RequestCode.HEART_BEAT, None, body)).code == ResponseCode.SUCCESS
        assert services.clients.consumers.get("new") is not None, "the client is known"
        assert before == (services.topics.version(), services.groups.version())
        assert "new" not in services.groups.table and "%RETRY%new" not in services.topics.table


async def test_delayed_messages_in_a_slave_s_store_wait_for_its_promotion() -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as master, connected() as client:
        assert (await ask(client, master, RequestCode.SEND_MESSAGE_V2, delayed(1), b"x")).code == 0
        assert (await ask(client, master, RequestCode.SEND_MESSAGE_V2, SEND, b"x")).code == 0
        end = master.services.store.max_physical_offset
    clock = VirtualClock(SystemClock().message_time_ms())
    async with running_broker(disk=disk, clock=clock, store=SLAVE, broker_id=1) as slave:
        clock.advance(3_600_000)
        for _ in range(10):
            await asyncio.sleep(0)
        assert slave.services.store.max_physical_offset == end
    async with running_broker(disk=disk, clock=clock) as promoted:
        await until(lambda: promoted.services.store.max_offset("T", 0) == 2)


def test_dledger_and_controller_mode_are_refused_at_start_by_key() -> None:
    with pytest.raises(StartError, match=r"enableDLegerCommitLog=true.*brokerRole"):
        check(BrokerConfig(), MessageStoreConfig(enable_dleger_commit_log=True))
    with pytest.raises(StartError, match=r"enableControllerMode=true.*brokerRole"):
        check(BrokerConfig(enable_controller_mode=True), MessageStoreConfig())
    with pytest.raises(StartError, match=r"enableControllerInNamesrv=true.*brokerRole"):
        check_namesrv(NamesrvConfig(enable_controller_in_namesrv=True))
