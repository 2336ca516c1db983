"""The command line and the config file of a broker."""

import re
from pathlib import Path

import pytest

from pocketmq.broker.__main__ import PROGRAM, main
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import (
    ADDRESS_KEYS,
    FIXED_KEYS,
    IGNORED_KEYS,
    UPDATABLE_KEYS,
    BrokerConfig,
    advertised_host,
    check,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime.command_line import server_arguments
from pocketmq.runtime.config import items_of
from pocketmq.runtime.lifecycle import StartError
from pocketmq.runtime.log import LogConfig
from pocketmq.store.config import IGNORED_KEYS as STORE_IGNORED_KEYS
from pocketmq.store.config import MessageStoreConfig
from tests.broker.running import ask, connected, route, running_namesrv

EXAMPLES = {
    "namesrvAddr", "bindAddress", "brokerIP1", "brokerIP2", "advertisedPort", "storePathRootDir", "storePathCommitLog",
    "rocketmqHome", "useTLS", "tls.config.file", "tls.server.certPath", "tls.server.keyPath", "tls.server.keyPassword",
    "tls.server.trustCertPath", "tls.client.certPath", "tls.client.keyPath", "tls.client.keyPassword",
    "tls.client.trustCertPath", "metricsPort", "haAllowedHosts", "haMasterAddress", "haUseTLS", "inSyncReplicas",
    "initAuthenticationUser", "innerClientAuthenticationCredentials",
}  # fmt: skip
"""Keys whose default cannot be written in the file, which has an example value instead."""
TUTORIAL = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
namesrvAddr=127.0.0.1:9876
defaultTopicQueueNums=4
listenPort=10911
deleteWhen=04
fileReservedTime=120
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
diskMaxUsedSpaceRatio=88
storePathRootDir=/tmp/store
storePathCommitLog=/tmp/store/commitlog
storePathConsumeQueue=/tmp/store/consumequeue
storePathIndex=/tmp/store/index
storeCheckpoint=/tmp/store/checkpoint
abortFile=/tmp/store/abort
maxMessageSize=65536
brokerRole=SYNC_MASTER
flushDiskType=ASYNC_FLUSH
sendMessageThreadPoolNums=128
pullMessageThreadPoolNums=128
"""


def configure(text: str, tmp_path: Path, *options: str) -> tuple[BrokerConfig, MessageStoreConfig]:
    broker, store, _ = configure_all(text, tmp_path, *options)
    return broker, store


def configure_all(text: str, tmp_path: Path, *options: str) -> tuple[BrokerConfig, MessageStoreConfig, TlsConfig]:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    arguments = server_arguments.parse(PROGRAM, "", ["-c", str(path), *options])
    declared = [BrokerConfig, MessageStoreConfig, TlsConfig, LogConfig]
    broker, store, tls, _ = server_arguments.configure(PROGRAM, arguments, declared, IGNORED_KEYS)
    return broker, store, tls


def test_config_file_of_the_tutorial_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker, store = configure(TUTORIAL, tmp_path)
    assert (broker.namesrv_addresses, broker.default_topic_queue_nums) == (("127.0.0.1:9876",), 4)
    assert (store.file_reserved_time, store.max_message_size, store.disk_max_used_space_ratio) == (120, 65536, 88)
    assert (store.mapped_file_size_commit_log, store.mapped_file_size_consume_queue) == (1 << 30, 6_000_000)
    assert store.broker_role == "SYNC_MASTER"
    check(broker, store)
    assert advertised_host(broker).name == "127.0.0.1"
    said = capsys.readouterr().err
    assert "unknown key" not in said
    for key in ("mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue", "storePathIndex", "sendMessageThreadPoolNums"):
        assert f"key {key}: ignored: " in said


async def test_broker_starts_with_the_tutorial_s_config(tmp_path: Path) -> None:
    text = TUTORIAL.replace("/tmp/store", str(tmp_path / "store"))
    async with running_namesrv() as ns, connected() as client:
        broker = Broker(*configure(text, tmp_path, "-n", f"127.0.0.1:{ns.port}", "--port", "0"))
        try:
            await broker.start()
            header = SendMessageRequestHeaderV2("pg", "T", "TBW102", 4, 0, 0, 0, 0)
            answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE, "stored; SYNC_MASTER has no slave"
            assert await route(client, ns, "T") is not None
        finally:
            await broker.stop()
    assert {path.name for path in (tmp_path / "store").iterdir()} >= {"commitlog", "consumequeue", "config", "checkpoint"}


def test_options_override_the_file(tmp_path: Path) -> None:
    broker, _ = configure(TUTORIAL, tmp_path, "-n", "a:1; b:2;a:1", "--port", "0")
    assert (broker.namesrv_addresses, broker.listen_port) == (("a:1", "b:2"), 0)


def test_invalid_value_ends_the_process_naming_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        configure("listenPort=70000\nbrokerId=x\n", tmp_path)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "listenPort=70000" in said and "brokerId=x" in said


@pytest.mark.parametrize(("option", "count_min"), [("-p", 60), ("-m", 20)])
def test_options_p_and_m_print_the_config_items(option: str, count_min: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([option])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= count_min
    assert {"listenPort=10911", "flushDiskType=ASYNC_FLUSH", "brokerRole=ASYNC_MASTER", "deleteWhen=04"} <= set(lines)
    assert any(line.startswith("storePathRootDir=/") for line in lines)
    assert ("regionId=DefaultRegion" in lines) == (option == "-p")


def test_annotated_file_has_the_default_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "conf" / "broker.conf").read_text()
    broker, store = configure(text, tmp_path)
    assert capsys.readouterr().err == ""
    broker.broker_name = BrokerConfig().broker_name
    assert (broker, store) == (BrokerConfig(), MessageStoreConfig())


def test_the_annotated_file_mentions_every_key_with_its_default(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "conf" / "broker.conf").read_text()
    rows = [(key, line) for line in text.splitlines() if (key := re.match(r"#?([\w.]+)=", line))]
    mentioned = {key[1] for key, _ in rows}
    own = [BrokerConfig, MessageStoreConfig, TlsConfig, LogConfig]
    # docs/grpc.md lists the other keys of the gRPC port.
    assert mentioned == {key for config in own for key in items_of(config)} | {"grpcServerPort", "grpcAdvertise"}
    defaults = "\n".join(line.removeprefix("#") for key, line in rows if key[1] not in EXAMPLES)
    broker, store, tls = configure_all(defaults, tmp_path)
    broker.broker_name = BrokerConfig().broker_name
    assert (broker, store, tls) == (BrokerConfig(), MessageStoreConfig(), TlsConfig())


def test_annotated_file_marks_store_keys_without_effect() -> None:
    text = (Path(__file__).parents[2] / "conf" / "broker.conf").read_text()
    assert [key for key in STORE_IGNORED_KEYS if not key.startswith("ha") and not re.search(rf"\b{key}\b", text)] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mappedFileSizeCommitLog=1000", "a whole number from 4096 to "),
        ("mappedFileSizeCommitLog=4100", "a multiple of 512"),
        ("mappedFileSizeConsumeQueue=0", "a whole number from 20 to "),
        ("mappedFileSizeConsumeQueueExt=9999999999", "a whole number from 64 to "),
        ("mappedFileOpenMax=-1", "a whole number not below 0"),
        ("flushIntervalCommitLog=0", "a whole number not below 1"),
        ("diskSpaceWarningLevelRatio=0.9", "a whole number from 1 to 100"),
        ("fileReservedTime=-1", "a whole number from 0 to 2147483647"),
        ("maxIndexNum=1", "a whole number from 2 to "),
        ("deleteWhen=4am", "hours from 00 to 23"),
        ("deleteWhen=04;24", "hours from 00 to 23"),
        ("flushDiskType=SYNC", "use ASYNC_FLUSH or SYNC_FLUSH"),
        ("storePathCommitLog=/a,/b\nreadOnlyCommitLogStorePaths=/b,/a", "no log file could be created"),
    ],
)
def test_invalid_store_setting_is_refused_with_key_value_and_limit(
    line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        check(*configure(line, tmp_path))
    except StartError as error:
        said = str(error)
    except SystemExit:
        said = capsys.readouterr().err
    else:
        said = ""
    assert expected in said and line.rpartition("\n")[2].partition("=")[0] in said
    assert "\n" in line or line in said


def test_queue_file_size_is_a_multiple_of_the_unit_size(tmp_path: Path) -> None:
    assert configure("mappedFileSizeConsumeQueue=3000001", tmp_path)[1].mapped_file_size_consume_queue == 3_000_020


async def test_store_keys_determine_the_file_sizes(tmp_path: Path) -> None:
    text = f"""
storePathRootDir={tmp_path}/store
storePathCommitLog={tmp_path}/a,{tmp_path}/b
mappedFileSizeCommitLog=8192
mappedFileSizeConsumeQueue=1001
enableConsumeQueueExt=true
mappedFileSizeConsumeQueueExt=500
enableLmq=true
enableMultiDispatch=true
maxHashSlotNum=10
maxIndexNum=20
transientStorePoolEnable=true
"""
    broker = Broker(*configure(text, tmp_path, "--port", "0"))
    await broker.start()
    try:
        async with connected() as client:
            for _ in range(5):
                header = SendMessageRequestHeaderV2("pg", "T", "TBW102", 1, 0, 0, 0, 0)
                header.properties = "INNER_MULTI_DISPATCH\x01%LMQ%x\x02KEYS\x01k"
                assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, bytes(3000))).code == 0
            broker.services.offsets.commit("%LMQ%g", "%LMQ%x", 0, 3)
    finally:
        await broker.stop()
    sizes = {str(path.relative_to(tmp_path)): path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    assert sizes["a/00000000000000000000"] == sizes["b/00000000000000008192"] == sizes["a/00000000000000016384"] == 8192
    assert sizes["store/consumequeue/T/0/00000000000000000000"] == 1020
    assert sizes["store/consumequeue/%LMQ%x/0/00000000000000000000"] == 1020
    assert sizes["store/consumequeue_ext/T/0/00000000000000000000"] == 500
    assert 40 + 10 * 4 + 20 * 20 in [size for name, size in sizes.items() if name.startswith("store/index/")]
    assert "store/config/lmqConsumerOffset.json" in sizes and "store/config/consumerOffset.json" not in sizes


def test_every_key_is_declared_once() -> None:
    declared = set(items_of(BrokerConfig)) | set(items_of(MessageStoreConfig))
    assert not declared & set(IGNORED_KEYS)
    assert declared >= UPDATABLE_KEYS
    assert not declared & set(FIXED_KEYS)
    assert not {key for key in UPDATABLE_KEYS - ADDRESS_KEYS if "Path" in key or "Addr" in key or key.startswith("brokerIP")}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (BrokerConfig(), "127.0.0.1"),
        (BrokerConfig(broker_ip1="localhost"), "localhost"),
        (BrokerConfig(bind_address="0.0.0.0", broker_ip1="10.9.8.7"), "10.9.8.7"),
        (BrokerConfig(bind_address="::1"), "::1"),
    ],
)
def test_advertised_address(config: BrokerConfig, name: str) -> None:
    assert advertised_host(config).name == name


def test_broker_bound_to_all_interfaces_advertises_a_real_address() -> None:
    found = advertised_host(BrokerConfig(bind_address="0.0.0.0"))
    assert found.address not in ("0.0.0.0", "")


def test_unknown_host_is_refused() -> None:
    with pytest.raises(StartError, match="brokerIP1=no such host"):
        advertised_host(BrokerConfig(broker_ip1="no such host"))
