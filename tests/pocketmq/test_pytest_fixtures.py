"""The pytest fixtures `pocketmq`, `pocketmq_session`, `pocketmq_topic` and `pocketmq_factory` in a project."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = """
import asyncio
from pocketmq import Message, Producer, PullConsumer

def send(namesrv, topic, *bodies, **options):
    async def story():
        async with Producer(namesrv, "p") as producer:
            for body in bodies:
                await producer.send(Message(topic, body, **options))
    asyncio.run(story())

def bodies(namesrv, topic):
    async def story():
        async with PullConsumer(namesrv, "reader") as consumer:
            found = []
            for queue in await consumer.queues(topic):
                found += [message.body for message in (await consumer.pull(queue, 0)).messages]
            return sorted(found)
    return asyncio.run(story())
"""

ONE_SERVER_EACH = """
import pytest
from client import bodies, send

seen = []

@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_an_empty_server(pocketmq, number):
    assert pocketmq.namesrv_address not in seen
    seen.append(pocketmq.namesrv_address)
    pocketmq.create_topic("Orders")
    assert bodies(pocketmq.namesrv_address, "Orders") == []
    send(pocketmq.namesrv_address, "Orders", b"A1", delay_level=16)
    assert bodies(pocketmq.namesrv_address, "Orders") == []
    pocketmq.advance("30m")
    assert bodies(pocketmq.namesrv_address, "Orders") == [b"A1"]

@pytest.mark.pocketmq(store="disk")
def test_a_store_on_disk_outlives_kill_and_restart(pocketmq, pocketmq_topic):
    address, grpc = pocketmq.broker_address, pocketmq.grpc_address
    send(pocketmq.namesrv_address, pocketmq_topic, b"before", delay_level=16)
    later_ms = pocketmq.advance("1h")
    for end in (pocketmq.kill, pocketmq.stop):
        end()
        assert not pocketmq.is_running
        pocketmq.start()
        assert (pocketmq.broker_address, pocketmq.grpc_address) == (address, grpc)
        assert pocketmq.now_ms >= later_ms
        assert bodies(pocketmq.namesrv_address, pocketmq_topic) == [b"before"]

def test_a_store_in_memory_is_lost(pocketmq, pocketmq_topic):
    send(pocketmq.namesrv_address, pocketmq_topic, b"before")
    pocketmq.restart()
    assert pocketmq.create_topic(pocketmq_topic) == pocketmq_topic
    assert bodies(pocketmq.namesrv_address, pocketmq_topic) == []
    assert not pocketmq.store.exists()

@pytest.mark.pocketmq(partitions=True)
def test_a_broker_that_is_cut_off_is_silent(pocketmq, pocketmq_topic):
    send(pocketmq.namesrv_address, pocketmq_topic, b"before")
    pocketmq.partition()
    with pytest.raises((TimeoutError, OSError)):
        send_within(pocketmq.namesrv_address, pocketmq_topic)
    pocketmq.heal()
    send(pocketmq.namesrv_address, pocketmq_topic, b"after")
    assert {b"before", b"after"} <= set(bodies(pocketmq.namesrv_address, pocketmq_topic))

def send_within(namesrv, topic):
    import asyncio
    from pocketmq import Message, Producer
    async def story():
        async with Producer(namesrv, "p") as producer, asyncio.timeout(2):
            await producer.send(Message(topic, b"between"))
    asyncio.run(story())
"""

OPTIONS = """
import importlib.util
import socket
import time
import pytest
from client import send
from pocketmq import RemotingError

def test_grpc_address_is_that_of_an_open_port_or_empty(pocketmq):
    assert bool(pocketmq.grpc_address) == (importlib.util.find_spec("grpc") is not None)
    if pocketmq.grpc_address:
        host, _, port = pocketmq.grpc_address.rpartition(":")
        socket.create_connection((host, int(port)), 10).close()

@pytest.mark.pocketmq(clock="system", settings={"autoCreateTopicEnable": "false", "brokerName": "own"})
def test_options_of_the_mark(pocketmq):
    with pytest.raises(RemotingError, match="--test-clock"):
        pocketmq.advance("1s")
    assert abs(pocketmq.now_ms - time.time() * 1000) < 60_000
    with pytest.raises(Exception, match="No topic route|not exist"):
        send(pocketmq.namesrv_address, "Unknown", b"x")

def test_unknown_message_type_is_refused(pocketmq):
    with pytest.raises(RemotingError, match="message.type"):
        pocketmq.create_topic("T", type="QUICK")

@pytest.mark.pocketmq(store="tape")
def test_invalid_option(pocketmq): ...

@pytest.mark.pocketmq("disk")
def test_option_without_a_keyword(pocketmq): ...
"""

SHARED = """
import os
import pytest
from client import bodies, send

used = []

@pytest.mark.parametrize("number", range(4))
def test_topics_of_tests_differ(pocketmq_session, pocketmq_topic, number):
    assert pocketmq_topic.startswith(f"test_topics_of_tests_differ-{number}-") and pocketmq_topic not in used
    used.append(pocketmq_topic)
    send(pocketmq_session.namesrv_address, pocketmq_topic, b"one")
    assert bodies(pocketmq_session.namesrv_address, pocketmq_topic) == [b"one"]
    with open(os.environ["SERVERS"], "a") as file:
        print(os.environ.get("PYTEST_XDIST_WORKER"), pocketmq_session.namesrv_address, file=file)

@pytest.mark.pocketmq_topic(queues=3)
class TestOfAClass:
    @pytest.mark.pocketmq_topic(type="FIFO")
    def test_marks_are_joined(self, pocketmq_session, pocketmq_topic):
        import subprocess, sys
        command = [sys.executable, "-m", "pocketmq", "admin", "topicRoute", "-n", pocketmq_session.namesrv_address]
        shown = subprocess.run([*command, "-t", pocketmq_topic], capture_output=True, text=True).stdout
        assert '"writeQueueNums":3' in shown.replace(" ", ""), shown

def test_a_factory_s_server_is_another(pocketmq_session, pocketmq_factory):
    made = pocketmq_factory(store="disk")
    assert made.namesrv_address != pocketmq_session.namesrv_address
    made.create_topic("T")
    assert made.store.is_dir()
    made.close()
"""


def run(folder: Path, text: str, *options: str) -> str:
    """Run pytest with strict marks in a project of one test file; return its output."""
    (folder / "client.py").write_text(CLIENT)
    (folder / "test_user.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\npythonpath = .\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={folder / 'temp'}",
        *options,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    return done.stdout + done.stderr


def test_a_server_for_each_test_is_advanced_killed_and_cut_off(tmp_path: Path) -> None:
    shown = run(tmp_path, ONE_SERVER_EACH)
    assert "5 passed" in shown, shown


def test_options_of_a_server(tmp_path: Path) -> None:
    shown = run(tmp_path, OPTIONS)
    assert "3 passed" in shown and "2 errors" in shown, shown
    assert "ValueError: store='tape': expected 'memory' or 'disk'" in shown
    assert "the options of the mark pocketmq are keywords" in shown


@pytest.mark.parametrize(
    ("options", "servers"),
    [
        pytest.param((), 1, id="one process", marks=pytest.mark.long),  # each of the two processes shows it too
        pytest.param(("-n", "2"), 2, id="two processes"),
    ],
)
def test_tests_of_a_process_share_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], servers: int
) -> None:
    monkeypatch.setenv("SERVERS", str(tmp_path / "servers"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shown = run(tmp_path, SHARED, *options)
    assert "6 passed" in shown, shown
    used = set((tmp_path / "servers").read_text().splitlines())
    assert len(used) == len({line.split()[1] for line in used}) == servers


def test_marks_are_listed(tmp_path: Path) -> None:
    shown = run(tmp_path, "", "--markers")
    assert re.search(r"^@pytest.mark.pocketmq\(store='memory', clock='test'", shown, re.MULTILINE)
    assert "@pytest.mark.pocketmq_topic(type='NORMAL', queues=4)" in shown


def test_the_plugin_imports_its_parts_when_they_are_used() -> None:
    text = (
        "import sys, pytest; before = set(sys.modules); import pocketmq.pytest_plugin; "
        "print(sorted(n for n in set(sys.modules) - before if not n.startswith('pocketmq.pytest_plugin')))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['pocketmq']", done.stderr
