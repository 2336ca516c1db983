"""updateBrokerConfig and updateNamesrvConfig: changes survive kill and restart, are atomic, and refused if invalid."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli import processes
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime import properties_file
from pocketmq.runtime.config import items_of
from pocketmq.runtime.config_updates import BODY_SIZE_MAX, WAITING_MAX
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.file_disk import FileDisk
from tests.broker.running import ask, connected, create_topic, route, running_broker, running_namesrv, until

CONFIG = "# our broker\nbrokerName = b\n\n! when to delete\ndeleteWhen=04\nwaitTimeMillsInSendQueue=5000\n"


async def update(client: RemotingClient, broker: Broker, body: bytes | str) -> RemotingCommand:
    data = body if isinstance(body, bytes) else body.encode()
    return await ask(client, broker, RequestCode.UPDATE_BROKER_CONFIG, None, data)


async def config_at(client: RemotingClient, address: str, code: int = RequestCode.GET_BROKER_CONFIG) -> dict[str, str]:
    return properties_file.loads((await client.call(address, code)).body.decode())


async def test_a_change_survives_kill_9_in_the_config_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(CONFIG + f"storePathRootDir={tmp_path}/store\n")
    launch = processes.Launch("pocketmq.broker", tmp_path, ("--port", "0", "-c", str(path)), None)
    async with connected() as client:
        server = launch.start()
        body = b"deleteWhen=05\nbrokerPermission=4\nslaveReadEnable=TRUE"
        await client.call(server.address, RequestCode.UPDATE_BROKER_CONFIG, None, body)
        server.process.kill()
        server.process.wait()
        expected = CONFIG.replace("deleteWhen=04", "deleteWhen=05") + f"storePathRootDir={tmp_path}/store\n"
        assert path.read_text() == expected + "brokerPermission=4\nslaveReadEnable=true\n"
        server = launch.start()
        try:
            found = await config_at(client, server.address)
        finally:
            server.stop()
    assert (found["deleteWhen"], found["brokerPermission"], found["slaveReadEnable"]) == ("05", "4", "true")


async def test_changes_without_a_config_file_are_kept_in_a_properties_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, code, body, kept in (
        ("broker", RequestCode.UPDATE_BROKER_CONFIG, b"deleteWhen=05", "store/config/broker.properties"),
        ("namesrv", RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true", "namesrv/namesrv.properties"),
    ):
        launch = processes.Launch(f"pocketmq.{name}", tmp_path, ("--port", "0"), None)
        async with connected() as client:
            server = launch.start()
            await client.call(server.address, code, None, body)
            server.process.kill()
            server.process.wait()
            assert (tmp_path / kept).read_bytes() == body + b"\n"
            server = launch.start()
            shown = RequestCode.GET_BROKER_CONFIG if name == "broker" else RequestCode.GET_NAMESRV_CONFIG
            try:
                found = await config_at(client, server.address, shown)
            finally:
                server.stop()
        key, _, value = body.decode().partition("=")
        assert found[key] == value and str(tmp_path / kept) in server.out.read_text()


async def test_every_config_key_is_shown_and_secrets_are_masked(tmp_path: Path) -> None:
    tls = TlsConfig(server_key_password="hush")
    async with running_broker(tls=tls) as broker, connected() as client:
        found = await config_at(client, f"127.0.0.1:{broker.port}")
        declared = {key for cls in (BrokerConfig, MessageStoreConfig, TlsConfig) for key in items_of(cls)}
        assert declared <= found.keys() and found["tls.server.keyPassword"] == "******"
        answer = await update(client, broker, "tls.server.keyPassword=x")
        assert (answer.code, answer.remark) == (1, "key tls.server.keyPassword cannot be changed while running")
    async with running_namesrv() as server, connected() as client:
        found = await config_at(client, f"127.0.0.1:{server.port}", RequestCode.GET_NAMESRV_CONFIG)
        assert {*items_of(NamesrvConfig), *items_of(TlsConfig)} <= found.keys()


async def test_pocketmq_up_keeps_changes_in_the_store_or_its_config_file(tmp_path: Path) -> None:
    kept, given = tmp_path / "store" / "config" / "broker.properties", tmp_path / "up.conf"
    given.write_text("# ours\nbrokerPermission=6\n")
    for file, hours, arguments in (kept, "3", ()), (given, "4", ("-c", str(given))):
        server = processes.start_up(tmp_path, "--store", str(tmp_path / "store"), *arguments)
        async with connected() as client:
            body = f"fileReservedTime={hours}".encode()
            await client.call(broker_of(server), RequestCode.UPDATE_BROKER_CONFIG, None, body)
        server.process.kill()
        server.process.wait()
        assert file.read_text().endswith(f"fileReservedTime={hours}\n")
        server = processes.start_up(tmp_path, "--store", str(tmp_path / "store"), *arguments)
        try:
            async with connected() as client:
                assert (await config_at(client, broker_of(server)))["fileReservedTime"] == hours
        finally:
            server.stop()
    assert given.read_text() == "# ours\nbrokerPermission=6\nfileReservedTime=4\n"


def broker_of(server: processes.Server) -> str:
    """Return the address of the broker of `pocketmq up`."""
    (address,) = re.findall(r"The broker\[.*address=(\S+)", server.out.read_text())
    return str(address)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"deleteWhen=05\ntraceOn=false\\nrocketmqHome=/x", "one line without control characters"),
        (b"deleteWhen=05\nbrokerIP1=h\\u000alistenPort=1", "one line without control characters"),
        (b"deleteWhen=05\nbrokerIP1=a=b", "brokerIP1=a=b: expected a host name or an address"),
        (b"deleteWhen=05\ntraceOn=true=1", "traceOn=true=1: expected true or false"),
        (b"deleteWhen=" + b"4" * 60_000, "deleteWhen=444"),
        (b"deleteWhen=05\n#" + b"x" * BODY_SIZE_MAX, f"the limit is {BODY_SIZE_MAX}"),
        (b"deleteWhen=05\nbrokerIP1=\xff\xfe", "not UTF-8"),
        (b"deleteWhen=05\nstorePathRootDir=/tmp", "key storePathRootDir cannot be changed while running"),
        (b"deleteWhen=05\ndeletWhen=05", "unknown key deletWhen; did you mean deleteWhen?"),
        (
            b"deleteWhen=05\nsendMessageThreadPoolNums=4",
            "key sendMessageThreadPoolNums has no effect here: there is only one",
        ),
        (
            b"deleteWhen=05\nlistenPort=99999",
            "advertisedPort=99999: expected a whole number from 1 to 65535; listenPort is an alias of advertisedPort here",
        ),
        (b"deleteWhen=05\nbrokerIP1=no.such.host.invalid", "brokerIP1=no.such.host.invalid: unknown host"),
        (b"deleteWhen=05\nbrokerIP1=10.1.2.3", "brokerIP1=10.1.2.3 is advertised to clients, but only 127.0.0.1 is bound"),
    ],
)
async def test_invalid_or_hostile_change_is_refused_as_a_whole(tmp_path: Path, body: bytes, words: str) -> None:
    store = {"store_path_root_dir": str(tmp_path / "store")}
    async with running_broker(disk=FileDisk(), store=store) as broker, connected() as client:
        answer = await update(client, broker, body)
        assert answer.code == 1 and words in (answer.remark or "") and len(answer.remark or "") < 1000
        assert broker.store_config.delete_when == "04" and broker.config.trace_on
        assert broker.services.config_version.counter == 0
        assert not (tmp_path / "store" / "config" / "broker.properties").exists()


async def test_change_is_refused_as_a_whole_if_the_file_cannot_be_written(tmp_path: Path) -> None:
    store = {"store_path_root_dir": str(tmp_path / "store")}
    kept = tmp_path / "store" / "config" / "broker.properties"
    async with running_broker(disk=FileDisk(), store=store) as broker, connected() as client:
        assert (await update(client, broker, "traceOn=false")).code == 0
        kept.chmod(0o444)
        for make_unwritable in (lambda: kept.chmod(0o444), lambda: os.mkdir(f"{kept}.tmp")):
            make_unwritable()
            answer = await update(client, broker, "deleteWhen=05\nbrokerPermission=4")
            assert answer.code == 1 and "nothing is changed" in (answer.remark or "") and str(kept) in (answer.remark or "")
            assert (broker.store_config.delete_when, broker.config.broker_permission) == ("04", 6)
            assert kept.read_text() == "traceOn=false\n"
            kept.chmod(0o644)


async def test_changes_are_made_in_sequence_and_waiting_ones_are_limited(tmp_path: Path) -> None:
    store = {"store_path_root_dir": str(tmp_path / "store")}
    count = 2 * WAITING_MAX
    async with running_broker(disk=FileDisk(), store=store) as broker, connected() as client:
        calls = [update(client, broker, f"fileReservedTime={hours}") for hours in range(1, count)]
        answers = await asyncio.gather(*calls)
        made = [hours for hours, answer in enumerate(answers, 1) if answer.code == 0]
        assert made and broker.store_config.file_reserved_time == made[-1]
        assert broker.services.config_version.counter == len(made)
        refused = [answer.remark for answer in answers if answer.code]
        assert all("other changes are waiting" in (remark or "") for remark in refused)


async def test_the_advertised_address_replaces_the_registered_one_at_once(tmp_path: Path) -> None:
    store = {"store_path_root_dir": str(tmp_path / "store")}
    async with running_namesrv() as server, connected() as client:
        async with running_broker(server, disk=FileDisk(), store=store) as broker:
            await create_topic(client, broker, "T")
            assert (await update(client, broker, "brokerIP1=localhost\nlistenPort=12345")).code == 0

            def registered() -> bool:
                brokers = server.routes.brokers()
                return [list(one.broker_addrs.values()) for one in brokers.values()] == [["localhost:12345"]]

            await until(registered)
            found = await route(client, server, "T")
            assert found is not None and found.broker_datas[0].broker_addrs == {"0": "localhost:12345"}
            header = SendMessageRequestHeaderV2("g", "T", "TBW102", 4, 0, 0, 0, 0, None)
            sent = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")
            assert sent.ext is not None and sent.ext["msgId"].startswith("7F00000100003039")  # 127.0.0.1:12345
            found_config = await config_at(client, f"127.0.0.1:{broker.port}")
            assert (found_config["brokerIP1"], found_config["advertisedPort"]) == ("localhost", "12345")
        kept = (tmp_path / "store" / "config" / "broker.properties").read_text()
        assert kept == "brokerIP1=localhost\nadvertisedPort=12345\n"  # the next start binds the same port again
        assert not server.routes.brokers()
