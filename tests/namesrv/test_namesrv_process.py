"""The name server as a whole: in this process, and as `python -m namesrv`."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from pocketmq.namesrv.__main__ import main
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.live_broker import BrokerIdentity
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, encode_body
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode as Code
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Route, routes
from pocketmq.remoting.headers.route import (
    NotifyMinBrokerIdChangeRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
)
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader
from pocketmq.remoting.server import RemotingServer
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.lifecycle import StartError
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from tests.patience import PATIENCE_S
from tests.support.commands import call


@pytest.fixture
async def served(tmp_path):
    """Run a name server; yield (name server, client factory, its address)."""
    paths = {"kv_config_path": str(tmp_path / "kv.json"), "config_store_path": str(tmp_path / "namesrv.conf")}
    server = NameServer(NamesrvConfig(listen_port=0, **paths))
    await server.start()
    clients = []

    def client():
        loop = asyncio.get_running_loop()
        clients.append(RemotingClient(Turn(loop), Timers(SystemClock(), loop)))
        return clients[-1]

    yield server, client, f"127.0.0.1:{server.port}"
    for one in clients:
        await one.close()
    await server.stop()


async def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


async def test_a_broker_is_in_the_route_until_its_connection_closes(served):
    server, client, address = served
    broker, consumer = client(), client()
    body = encode_body(RegisterBrokerBody(TopicConfigSerializeWrapper({"T": TopicConfig("T")})))
    await broker.call(address, Code.REGISTER_BROKER, RegisterBrokerRequestHeader("a", "h:1", "c", "h:2", 0), body)
    assert json.loads((await consumer.call(address, Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T"))).body)
    await broker.close()
    await until(lambda: not server.routes.topics())
    assert (await consumer.invoke(address, Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T"))).code == 17


async def test_silent_broker_is_removed_and_its_connection_closed(served):
    server, client, address = served
    broker = client()
    header = RegisterBrokerRequestHeader("a", "h:1", "c", "h:2", 0, heartbeat_timeout_millis=1)
    await broker.call(address, Code.REGISTER_BROKER, header)
    channel = await broker.channel(address)
    await until(lambda: server.expire() or not server.routes.brokers())
    await until(lambda: not channel.is_open)


async def test_unknown_code_is_answered(served):
    _, client, address = served
    answer = await client().invoke(address, 4711)
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")


async def test_config_update_is_written_to_the_file_and_keeps_its_comments(served, tmp_path):
    server, client, address = served
    path = tmp_path / "namesrv.conf"
    path.write_text("# ours\nlistenPort=0\norderMessageEnable = false\n")
    await client().call(
        address, Code.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\nserverChannelMaxIdleTimeSeconds=60"
    )
    assert path.read_text() == "# ours\nlistenPort=0\norderMessageEnable=true\nserverChannelMaxIdleTimeSeconds=60\n"
    assert server.config.order_message_enable


async def test_error_for_a_port_in_use_names_address_and_config_key(served):
    server, *_ = served
    second = NameServer(NamesrvConfig(listen_port=server.port, kv_config_path=""))
    with pytest.raises(StartError, match=rf"127\.0\.0\.1:{server.port} \(listenPort={server.port}\): the port is taken"):
        await second.start()
    await second.stop()


async def test_name_servers_are_independent(served):
    server, client, address = served
    second = NameServer(NamesrvConfig(listen_port=0, kv_config_path=""))
    await second.start()
    await client().call(address, Code.PUT_KV_CONFIG, PutKVConfigRequestHeader("ns", "k", "v"))
    asked = await client().invoke(f"127.0.0.1:{second.port}", Code.GET_KV_CONFIG, PutKVConfigRequestHeader("ns", "k", ""))
    assert asked.code == 22
    await second.stop()


class Process:
    """A `python -m namesrv` process with its files in `folder`."""

    def __init__(self, folder, *options):
        config = folder / "ns.conf"
        if not config.exists():
            config.write_text(f"kvConfigPath={folder}/kvConfig.json\nnoSuchKey=1\nserverWorkerThreads=8\n")
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "namesrv", "-c", str(config), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ready_line(self):
        return self.popen.stdout.readline().rstrip()

    def end(self, number=None):
        """Send the signal, if any, wait for the exit and return (exit code, stdout, stderr)."""
        if number is not None:
            self.popen.send_signal(number)
        out, err = self.popen.communicate(timeout=PATIENCE_S)
        return self.popen.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_reports_readiness_and_stops_at_a_signal(tmp_path, number):
    process = Process(tmp_path, "--port", "0")
    line = process.ready_line()
    prefix = "The Name Server boot success. serializeType=JSON, address=127.0.0.1:"
    assert line.startswith(prefix)
    with socket.create_connection(("127.0.0.1", int(line.removeprefix(prefix))), timeout=PATIENCE_S) as peer:
        code, out, err = process.end(number)
        assert peer.recv(1) == b""
    assert (code, out) == (0, "")
    assert "unknown key noSuchKey" in err and "key serverWorkerThreads: ignored: one event loop" in err
    assert "Traceback" not in err


def test_process_with_a_port_in_use_exits_with_a_one_line_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = Process(tmp_path, "--port", str(port)).end()
    assert (code, out) == (1, "")
    last = err.splitlines()[-1]
    assert f"listenPort={port}" in last and "taken" in last and "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["-p"], 0, "orderMessageEnable=false\n"),
        (["-m"], 0, "listenPort=9876\n"),
        (["-h"], 0, "--port"),
        (["--port", "99999"], 2, "--port 99999: expected a whole number from 0 to 65535"),
        (["-x"], 2, "unknown option -x"),
        (["-c", "/no/such/file"], 2, "/no/such/file: No such file or directory"),
    ],
)
def test_command_line_options(tmp_path, options, code, said):
    (tmp_path / "ns.conf").touch()
    done = call(main, "-c", tmp_path / "ns.conf", *options)
    assert done.returncode == code
    assert said in (done.stdout if code == 0 else done.stderr)


def test_option_m_prints_only_the_important_config_keys(tmp_path):
    _, out, _ = Process(tmp_path, "-m").end()
    assert "orderMessageEnable" not in out


async def test_administrative_and_registration_codes_are_restricted_to_allowed_addresses(tmp_path):
    server = NameServer(
        NamesrvConfig(listen_port=0, kv_config_path="", admin_allow="10.0.0.0/8", register_allow="127.0.0.0/8,::1")
    )
    await server.start()
    loop = asyncio.get_running_loop()
    client, address = RemotingClient(Turn(loop), Timers(SystemClock(), loop)), f"127.0.0.1:{server.port}"
    for code in (Code.UPDATE_NAMESRV_CONFIG, Code.GET_NAMESRV_CONFIG):
        answer = await client.invoke(address, code)
        assert (answer.code, answer.remark) == (
            16, f"request code {code} is not served to 127.0.0.1: it is not in adminAllow",
        )  # fmt: skip
    assert (await client.invoke(address, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).code == 0
    assert (
        await client.invoke(address, Code.REGISTER_BROKER, RegisterBrokerRequestHeader("a", "h:1", "c", "h:2", 0))
    ).code == 0
    await client.close()
    await server.stop()


@pytest.mark.parametrize("key", ["admin_allow", "register_allow"])
async def test_name_server_does_not_start_with_an_invalid_allow_list(key):
    server = NameServer(NamesrvConfig(listen_port=0, kv_config_path="", **{key: "10.0.0.300"}))
    with pytest.raises(StartError, match="Allow=10.0.0.300: expected addresses or networks"):
        await server.start()
    await server.stop()


async def test_brokers_are_notified_at_once_of_a_new_smallest_broker_id(tmp_path):
    """One slave answers. The other addresses refuse the connection, are invalid, or never answer."""
    loop = asyncio.get_running_loop()
    turn, timers = Turn(loop), Timers(SystemClock(), loop)
    told = []

    def note(services, request):
        told.append((request.header.min_broker_id, request.header.offline_broker_addr))
        return Response()

    table = routes(Route(Code.NOTIFY_MIN_BROKER_ID_CHANGE, NotifyMinBrokerIdChangeRequestHeader, note))
    slave = RemotingServer(None, table, Channels(turn, timers, 120, is_server=True))
    slave_address = f"127.0.0.1:{await slave.listen('127.0.0.1', 0)}"
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    silent_address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    config = NamesrvConfig(listen_port=0, kv_config_path=str(tmp_path / "kv.json"), notify_min_broker_id_changed=True)
    server, broker = NameServer(config), RemotingClient(turn, timers)
    await server.start()
    addresses = ["127.0.0.1:1", "not an address", silent_address, slave_address]
    for broker_id, address in [(0, "10.0.0.1:1"), *enumerate(addresses, 1)]:
        header = RegisterBrokerRequestHeader("a", address, "c", "h:2", broker_id, enable_acting_master=True)
        await broker.call(f"127.0.0.1:{server.port}", Code.REGISTER_BROKER, header)
    server.routes.unregister(BrokerIdentity("c", "a", "10.0.0.1:1", 0))
    await until(lambda: told)
    assert told == [(1, "10.0.0.1:1")]
    await server.stop()
    await broker.close()
    silent.close()
    await slave.close()
