"""A whole broker: start, registration, both ports, stop and restart."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.startup.ports import reserve_ports, share
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.broker.running import ask, connected, create_topic, route, running_broker, running_namesrv, until

SUSPEND_AND_SUBSCRIPTION = 2 | 4


def send_header(topic: str, properties: str | None = None) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2("pg", topic, "TBW102", 4, 0, 0, 0, 0, properties)


async def test_registers_its_topics_and_unregisters_when_stopped() -> None:
    async with running_namesrv() as ns, connected() as client:
        async with running_broker(ns) as broker:
            found = await route(client, ns, "TBW102")
            assert found is not None
            assert found.broker_datas[0].broker_addrs == {"0": f"127.0.0.1:{broker.port}"}
            assert found.queue_datas[0].perm == 7
        assert await route(client, ns, "TBW102") is None


async def test_created_topic_is_in_all_routes_once_the_create_is_answered() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with (
            running_namesrv() as one,
            running_namesrv() as two,
            connected() as client,
            running_broker(one, dead, two) as broker,
        ):
            for number in range(5):
                assert (await create_topic(client, broker, f"T{number}", 3)).code == ResponseCode.SUCCESS
                for ns in (one, two):
                    found = await route(client, ns, f"T{number}")
                    assert found is not None and found.queue_datas[0].write_queue_nums == 3


async def test_topic_created_by_a_send_is_in_the_route_once_it_is_answered() -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as broker:
        for number in range(5):
            answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, send_header(f"Fresh{number}"), b"x")
            assert answer.code == ResponseCode.SUCCESS
            assert await route(client, ns, f"Fresh{number}") is not None


async def test_held_pull_is_answered_before_a_stopping_broker_closes_the_connection() -> None:
    async with connected() as client, running_broker() as broker:
        await create_topic(client, broker, "T")
        pull = PullMessageRequestHeader("g", "T", 0, 0, 32, SUSPEND_AND_SUBSCRIPTION, 0, 15_000, 0, "*", "TAG")
        address = f"127.0.0.1:{broker.port}"
        held = asyncio.ensure_future(client.invoke(address, RequestCode.PULL_MESSAGE, pull, b"", 30.0))
        await until(lambda: broker.services.holds.count == 1)
        stopping = asyncio.ensure_future(broker.stop())
        answer = await held
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "0")
        again = await client.invoke(address, RequestCode.PULL_MESSAGE, pull, b"", 30.0)
        assert again.code == ResponseCode.SERVICE_NOT_AVAILABLE and "is stopping" in (again.remark or "")
        await stopping


async def test_deleting_a_topic_deletes_its_messages() -> None:
    async with connected() as client, running_broker() as broker:
        await create_topic(client, broker, "T")
        await ask(client, broker, RequestCode.SEND_MESSAGE_V2, send_header("T"), b"x")
        assert (await ask(client, broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader("T"))).code == 0
        gone = await ask(client, broker, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("T"))
        assert (gone.code, gone.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist")
        assert broker.services.store.queue("T", 0) is None


async def test_works_without_a_name_server() -> None:
    async with connected() as client, running_broker() as broker:
        assert (await create_topic(client, broker, "T")).code == ResponseCode.SUCCESS


async def test_the_vip_port_serves_sends_and_refuses_pulls() -> None:
    async with connected() as client, running_broker() as broker:
        assert broker.fast_port == broker.port - 2
        address = f"127.0.0.1:{broker.fast_port}"
        sent = await client.invoke(address, RequestCode.SEND_MESSAGE_V2, send_header("T"), b"x")
        assert sent.code == ResponseCode.SUCCESS
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            refused = await client.invoke(address, code)
            assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert refused.remark == f" request type {code} not supported"


async def test_occupied_vip_port_only_disables_the_vip_channel(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as fast, socket.socket() as main:
        fast.bind(("127.0.0.1", 0))
        fast.listen()
        port = fast.getsockname()[1] + 2
        try:
            main.bind(("127.0.0.1", port))
        except OSError:
            pytest.skip(f"port {port} happens to be taken")
        main.close()
        async with connected() as client, running_broker(listen_port=port) as broker:
            assert broker.fast_port is None
            assert (await create_topic(client, broker, "T")).code == ResponseCode.SUCCESS
    assert "the VIP channel is off" in caplog.text


async def test_vip_port_taken_during_the_start_only_disables_the_vip_channel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as intruder:

        def share_and_lose(reserved: list[socket.socket]) -> None:
            share(reserved)
            share([intruder])
            intruder.bind(reserved[1].getsockname())
            intruder.listen()

        monkeypatch.setattr("pocketmq.broker.broker.share", share_and_lose)
        async with connected() as client, running_broker() as broker:
            assert broker.fast_port is None
            assert (await create_topic(client, broker, "T")).code == ResponseCode.SUCCESS
    assert "the VIP channel is off" in caplog.text


def test_free_ports_are_reserved_against_other_processes_that_start() -> None:
    reserved = reserve_ports("127.0.0.1", 0)
    try:
        for one in reserved:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                share([other])
                other.bind(one.getsockname())
        share(reserved)
        for one in reserved:
            socket.create_server(one.getsockname()).close()
    finally:
        for one in reserved:
            one.close()


async def test_topics_groups_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    store = {"store_path_root_dir": str(tmp_path)}
    async with connected() as client:
        async with running_broker(disk=FileDisk(), store=store) as broker:
            await create_topic(client, broker, "T", 2)
            for body in (b"a", b"b"):
                await ask(client, broker, RequestCode.SEND_MESSAGE_V2, send_header("T", "DELAY\x011"), body)
            header = UpdateConsumerOffsetRequestHeader("g", "T", 1, 7)
            await ask(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            assert (tmp_path / "abort").exists()
        assert not (tmp_path / "abort").exists()
        assert json.loads((tmp_path / "config/consumerOffset.json").read_text())["offsetTable"] == {"T@g": {"1": 7}}
        async with running_broker(disk=FileDisk(), store=store) as broker:
            config = broker.services.topics.get("T")
            assert config is not None and config.write_queue_nums == 2
            asked = QueryConsumerOffsetRequestHeader("g", "T", 1)
            answer = await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, asked)
            assert answer.ext == {"offset": "7"}
            await until(lambda: broker.services.store.max_offset("T", 0) == 2)


async def test_store_locked_by_another_process_is_refused(tmp_path: Path) -> None:
    store = {"store_path_root_dir": str(tmp_path)}
    async with running_broker(disk=FileDisk(), store=store):
        with pytest.raises(StartError, match="in use by another broker"):
            async with running_broker(disk=FileDisk(), store=store):
                pass


async def test_occupied_port_is_refused_naming_the_config_key() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartError, match="listenPort"):
            async with running_broker(listen_port=taken.getsockname()[1]):
                pass


async def test_sync_master_without_slave_stores_and_answers_not_available() -> None:
    async with connected() as client, running_broker(store={"broker_role": "SYNC_MASTER"}) as broker:
        answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, send_header("T"), b"x")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert answer.ext is not None and answer.ext["queueOffset"] == "0"
        assert broker.services.store.max_physical_offset > 0


@pytest.mark.parametrize(
    ("config", "store", "words"),
    [
        ({}, {"broker_role": "SLAVE"}, "brokerId=0 with brokerRole=SLAVE"),
        ({}, {"broker_role": "LEADER"}, "brokerRole=LEADER"),
        ({}, {"ha_allowed_hosts": "here"}, "haAllowedHosts=here"),
        ({"broker_id": 1}, {}, "brokerId=1"),
        ({"broker_ip1": "10.1.2.3"}, {}, "bindAddress=0.0.0.0\nbrokerIP1=10.1.2.3"),
        ({"broker_ip1": "0.0.0.0", "bind_address": "0.0.0.0"}, {}, "brokerIP1=0.0.0.0"),
        ({"namesrv_addr": "here"}, {}, "namesrvAddr=here: expected HOST:PORT"),
        ({}, {"message_delay_level": "1s 5x"}, "messageDelayLevel: level 2"),
        ({}, {"flush_disk_type": "NOW"}, "flushDiskType=NOW"),
    ],
)
async def test_unsupported_config_values_are_refused_naming_the_key(
    config: dict[str, object], store: dict[str, object], words: str
) -> None:
    broker = Broker(
        BrokerConfig(listen_port=0, **config),  # type: ignore[arg-type]
        MessageStoreConfig(store_path_root_dir="/store", **store),  # type: ignore[arg-type]
        MemoryDisk(),
    )
    with pytest.raises(StartError) as refused:
        await broker.start()
    await broker.stop()
    assert words in str(refused.value)


async def test_broker_advertises_the_configured_address() -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, bind_address="0.0.0.0", broker_ip1="localhost", advertised_port=4321) as broker,
    ):
        found = await route(client, ns, "TBW102")
        assert found is not None and found.broker_datas[0].broker_addrs == {"0": "localhost:4321"}
        assert broker.services.store_host[-6:] == bytes((0, 1, 0, 0, 0x10, 0xE1))
