"""Raised scheduling priority of the broker's event loop thread, where permitted."""

import os
import sys

import pytest

from pocketmq.broker.startup import priority
from pocketmq.cli import processes
from tests.broker.running import running_broker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such priorities")


def test_priority_of_the_loop_thread_is_logged(tmp_path):
    broker = processes.start_broker(tmp_path, "127.0.0.1:1", {"realTimePriority": "1"})
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{broker.process.pid}/task")]
        in_real_time = [thread for thread in threads if os.sched_getscheduler(thread) & os.SCHED_RR]
    finally:
        assert broker.stop() == 0
    assert len(threads) > 1
    said = broker.out.read_text()
    if in_real_time:
        assert in_real_time == [broker.process.pid] and "the event loop runs at real-time priority 1" in said
    else:
        assert "realTimePriority=1 is not granted (Operation not permitted)" in said and "CAP_SYS_NICE" in said


async def test_broker_starts_without_the_right_to_raise_its_priority(monkeypatch, caplog):
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(priority.os, "sched_setscheduler", refuse)
    async with running_broker(real_time_priority=7) as broker:
        assert broker.port
    assert "realTimePriority=7 is not granted (Operation not permitted)" in caplog.text
