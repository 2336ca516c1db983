import io
import logging

import pytest

from pocketmq.broker.startup import recovery_progress
from pocketmq.broker.startup.recovery_progress import RecoveryProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_recovery_is_logged_periodically_and_a_short_one_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr(recovery_progress.time, "monotonic", lambda: now[0])
    caplog.set_level(logging.INFO)
    with RecoveryProgress() as progress:
        for _ in range(120):
            now[0] += 0.1
            progress("recovering", 10 << 20, 100 << 20)
    assert caplog.messages == ["recovering: 10 of at most 100 MiB"] * 2


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(recovery_progress, "_FIRST_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with RecoveryProgress() as progress:
        progress("recovering", 10 << 20, 100 << 20)
        progress("rebuilding queues", 1, 2)
    assert "recovering" in terminal.getvalue() and "rebuilding queues" in terminal.getvalue()
