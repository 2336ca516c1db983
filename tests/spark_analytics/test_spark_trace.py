"""Histories of messages in stores written by Apache's brokers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

Command = Callable[..., int]
CONSUMED_9 = "FD0000000000000000000000000000025F964E0E2F2A67BC3720086A"


@pytest.fixture(params=[(), ("--scan",), ("--scan", "--engine", "spark")], ids=["index", "scan", "Spark"])
def lives(
    command: Command, golden_stores: dict[str, Path], capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Callable[[str, str], list[dict[str, Any]]]:
    """Return a function that traces a key by the index, or by a scan with either engine, and returns the histories."""

    def trace(store: str, key: str) -> list[dict[str, Any]]:
        assert command("trace", golden_stores[store], key, "--json", *request.param) == 0
        told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return told

    return trace


Lives = Callable[[str, str], list[dict[str, Any]]]


def happened(life: dict[str, Any]) -> list[str]:
    return [event["what"] for event in life["events"]]


@pytest.mark.parametrize("key", ["consume-9", CONSUMED_9, "7F000001000049DF000000000028F8E5"])
def test_history_of_a_dead_letter(lives: Lives, key: str) -> None:
    (life,) = lives("v4_clean", key)
    assert (life["message"], life["keys"]) == (CONSUMED_9, "consume-9")
    assert happened(life) == [
        *("born", "stored", "waits for retry 1", "retry 1", "waits for retry 2", "retry 2", "dead letter")
    ]
    assert [event["physical_offset"] for event in life["events"][1:]] == [
        2685157,
        2693082,
        2696170,
        2698895,
        2705491,
        2706655,
    ]
    assert "73 ms late" in life["events"][3]["detail"]
    assert "confirmed by GoldenConsumerGroup" in life["events"][1]["detail"]
    assert "sent back 3 times" in life["events"][-1]["detail"]


def test_history_of_a_checked_transaction(lives: Lives) -> None:
    (life,) = lives("v4_clean", "tx-unknown-then-commit-0")
    assert happened(life) == ["born", "prepared", "checked", "committed", "resolved"]
    (rolled_back,) = lives("v4_clean", "tx-rollback-0")
    assert happened(rolled_back) == ["born", "prepared", "resolved"]


def test_history_of_timers(lives: Lives) -> None:
    (life,) = lives("v5_clean", "ms-1")
    assert happened(life) == ["born", "waits", "delivered"]
    assert "ms late" in life["events"][-1]["detail"]
    (cancelled,) = lives("v5_clean", "FD0000000000000000000000000000023F684E0E2F2A67D93AE3003A")
    assert happened(cancelled)[-1] == "cancelled"


def test_printed_table_and_unknown_key(
    command: Command, golden_stores: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert command("trace", golden_stores["v4_clean"], "delay18-0") == 0
    shown = capsys.readouterr().out
    assert "waits" in shown and "2026-11-21 05:26:25.482" in shown
    assert command("trace", golden_stores["v4_clean"], "no'such") == 1
    assert "no message has the key, unique key or id no'such" in capsys.readouterr().out
