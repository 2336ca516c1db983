"""The pytest fixture, `pocketmq delay` and `clock` with its cluster, and the example that uses it."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from pocketmq.cli.duration import parse_duration_ms
from pocketmq.cli.main import main
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer
from pocketmq.pytest_plugin import pocketmq_cluster  # noqa: F401
from pocketmq.testing.server import VirtualCluster
from tests.support.commands import call

EXAMPLE = Path(__file__).parents[2] / "examples" / "order_timeout" / "test_shop.py"


def _example() -> list[Callable[[VirtualCluster], None]]:
    specification = importlib.util.spec_from_file_location("order_timeout_example", EXAMPLE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return [function for name, function in vars(module).items() if name.startswith("test_")]


@pytest.mark.parametrize("story", _example(), ids=lambda story: story.__name__)
def test_the_order_timeout_example(story, pocketmq_cluster):  # noqa: F811
    story(pocketmq_cluster)


def pocketmq(cluster: VirtualCluster, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return call(main, *arguments, "-n", cluster.namesrv_address, text=text)


def lines(cluster: VirtualCluster, *arguments: str, text: str = "") -> list[str]:
    done = pocketmq(cluster, *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def send(namesrv: str, *messages: Message) -> None:
    async with Producer(namesrv, "p") as producer:
        for message in messages:
            await producer.send(message)


def test_delay_command_lists_and_changes_pending_messages(pocketmq_cluster):  # noqa: F811
    cluster = pocketmq_cluster
    messages = [
        Message("Orders", b"a", keys="order-1", properties={"UNIQ_KEY": "A", "TIMER_DELAY_SEC": "1800"}),
        Message("Orders", b"b", tags="t", keys="order-2", delay_level=5, properties={"UNIQ_KEY": "B"}),
        Message("Orders", b"c", properties={"UNIQ_KEY": "C", "TIMER_DELAY_SEC": "86400"}),
        Message("Other", b"d", properties={"UNIQ_KEY": "D", "TIMER_DELAY_SEC": "60"}),
    ]
    asyncio.run(send(cluster.namesrv_address, *messages))
    listed = [json.loads(line) for line in lines(cluster, "delay", "ls", "--json")]
    assert [row["msgId"] for row in listed] == ["B", "D", "A", "C"]
    assert listed[0]["brokerName"] == "pocketmq" and listed[0]["level"] == 5
    table = lines(cluster, "delay", "ls", "--topic", "Orders", "--to", "+1h")
    assert [("level 5" in row, "order-" in row) for row in table[1:]] == [(True, True), (False, True)]
    assert "TIMER_DELAY_SEC: 1800" in lines(cluster, "delay", "show", "A")
    assert lines(cluster, "delay", "count")[-1].split() == ["total", "4"]

    refused = pocketmq(cluster, "delay", "cancel", "A", text="n\n")
    assert refused.returncode == 1 and "1 message(s), the first due" in refused.stderr
    assert lines(cluster, "delay", "cancel", "A", text="y\n")[0].startswith("cancelled A of Orders, due ")
    assert lines(cluster, "delay", "now", "--topic", "Other", "--yes")[0].startswith("delivered D of Other")
    gone = pocketmq(cluster, "delay", "cancel", "A", "--yes")
    assert (gone.returncode, gone.stderr) == (1, "pocketmq: error: no such message is pending\n")
    assert [json.loads(line)["msgId"] for line in lines(cluster, "delay", "ls", "--json")] == ["B", "C"]

    (told,) = lines(cluster, "clock", "advance", "1d")
    assert told.startswith("pocketmq  ") and told.endswith(f"{cluster.now_ms}  test clock")
    assert lines(cluster, "delay", "ls") == []
    consumed = [lines(cluster, "consume", topic, "--from-start", "--timeout", "2") for topic in ("Orders", "Other")]
    assert [sorted(line.split()[-1] for line in part) for part in consumed] == [["b", "c"], ["d"]]


def test_advance_accepts_text_number_and_timedelta(pocketmq_cluster):  # noqa: F811
    now_ms = pocketmq_cluster.now_ms
    for duration, ms in (("1h30m", 5_400_000), (250, 250), (timedelta(seconds=2), 2000)):
        now_ms += ms
        assert pocketmq_cluster.advance(duration) == now_ms == pocketmq_cluster.now_ms


@pytest.mark.parametrize("text", ["", "30", "m", "30 m", "1m30", "-1m", "1.5h"])
def test_invalid_duration_is_refused(text):
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration_ms(text)


def test_broker_with_the_system_clock_is_not_advanced(tmp_path):
    from pocketmq.cli.processes import start_up

    server = start_up(tmp_path, "--memory")
    try:
        command = [sys.executable, "-m", "pocketmq", "clock", "advance", "1s", "-n", server.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "--test-clock" in done.stderr
    finally:
        server.stop()
