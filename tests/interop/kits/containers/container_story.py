"""A test with PocketMQContainer where the container engine is replaced by one that starts the command as a process."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from testcontainers.core import container as containers
from testcontainers.core.config import ConnectionMode
from testcontainers.core.config import testcontainers_config as config

from pocketmq import Message, Producer
from pocketmq.testing.container import PocketMQContainer

CONTAINER_PORTS = {9876: -10, 10911: 0, 8081: 10, 5557: -9}
"""Ports in the container, and their distance from the broker's if `pocketmq up` runs with another `--port`."""


class Container:
    """The command of a container as a process of this machine, with its ports near that of the broker."""

    id = short_id = "c0"
    status = "running"
    attrs: dict[str, object] = {}

    def __init__(self, folder, image, command, ports):
        self.image, self.command, self.ports = image, command, ports
        self.log = folder / "log"

    def start(self):
        port = self.ports["10911"] + CONTAINER_PORTS[9876]
        command = [sys.executable, "-P", "-m", *self.command, "--port", str(port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def logs(self, stdout=True, stderr=True):
        return self.log.read_bytes() if stdout else b""

    def reload(self):
        self.status = "running" if self.process.poll() is None else "exited"

    def remove(self, **_):
        self.process.terminate()
        self.process.wait()


class Engine:
    """The part of testcontainers' DockerClient that a container uses."""

    made: list[Container] = []
    folder = Path()

    def __init__(self):
        self.client = self

    def close(self): ...

    def host(self):
        return "localhost"

    def get_connection_mode(self):
        return ConnectionMode.docker_host

    def create(self, image, *, command, environment, ports, **_):
        self.made.append(Container(self.folder, image, command, ports))
        return self.made[-1]

    def start(self, container):
        container.start()

    def port(self, container_id, port):
        return self.made[-1].ports["10911"] + CONTAINER_PORTS[port]


@pytest.fixture(autouse=True)
def engine(monkeypatch, tmp_path):
    monkeypatch.setattr(containers, "DockerClient", Engine)
    monkeypatch.setattr(config, "ryuk_disabled", True)
    monkeypatch.setattr(Engine, "folder", tmp_path)


def test_messages_are_sent_and_delayed():
    async def send(namesrv, topic):
        async with Producer(namesrv, "shop") as producer:
            return (await producer.send(Message(topic, b"A1"))).status

    with PocketMQContainer(settings={"brokerName": "shop"}) as mq:
        assert asyncio.run(send(mq.namesrv_address, mq.create_topic(type="NORMAL"))) == "SEND_OK"
        before_ms = mq.now_ms
        assert mq.advance("30m") == before_ms + 1_800_000
        assert mq.metrics_url == f"http://localhost:{mq.broker_port - 9}/metrics"
        host, _, port = mq.grpc_address.rpartition(":")
        assert (host, int(port)) == ("localhost", mq.broker_port + 10)
        (made,) = Engine.made
    assert made.process.returncode == 0
    assert made.image == "pocketmq"
    command = "pocketmq up --memory --advertise 127.0.0.1:{} --set metricsHost=0.0.0.0 --test-clock --set brokerName=shop"
    assert " ".join(made.command) == command.format(mq.broker_port)
    assert made.ports == {"9876": None, "8081": None, "5557": None, "10911": mq.broker_port}


def test_options_change_image_port_and_clock():
    mq = PocketMQContainer("registry/pocketmq:1", test_clock=False, broker_port=20911)
    mq._configure()
    assert mq.image == "registry/pocketmq:1"
    assert " ".join(mq._command) == "pocketmq up --memory --advertise 127.0.0.1:20911 --set metricsHost=0.0.0.0"


def test_a_server_that_cannot_start_is_reported():
    with pytest.raises((RuntimeError, TimeoutError)), PocketMQContainer(settings={"brokerId": "x"}):
        pytest.fail("it started")
