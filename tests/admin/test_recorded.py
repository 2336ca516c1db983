"""Each command prints what Apache's mqadmin 4.9.4 printed when it got the same answers."""

import re
import time
from collections.abc import Iterator

import pytest

from pocketmq.admin.commands import FAMILIES, message_query
from pocketmq.client.access import Access
from pocketmq.remoting.codes import RequestCode
from tests.admin.conftest import Mqadmin, Printed
from tests.admin.recorded import RECORDED, Recorded, Replayer

HERE = {name for names in FAMILIES.values() for name in names}
ASKED_IN_ADDITION = {"statsAll": {RequestCode.GET_CONSUME_STATS}}
"""Requests that only PocketMQ's mqadmin sends: for groups without a retry topic, Apache's tool shows no accumulation."""


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not write message bodies to files."""
    monkeypatch.setattr(message_query, "write_body", lambda message, number: f"/tmp/rocketmq/msgbodys/{message.msg_id}")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the time zone in which the recordings were made."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def replayed(mqadmin: Mqadmin, monkeypatch: pytest.MonkeyPatch, recorded: Recorded, *more: str) -> tuple[Printed, Replayer]:
    replayer = Replayer(recorded)
    monkeypatch.setattr(Access, "client", lambda *_: replayer)
    return mqadmin(*recorded.arguments, *more), replayer


def lines_of(text: str) -> list[str]:
    """Return the sorted lines without blank ones at the end: Apache prints rows in the order of its hash tables."""
    return sorted(re.sub(r"\s+$", "", line) for line in text.rstrip("\n").split("\n"))


@pytest.mark.parametrize("name", [name for name, recorded in RECORDED.items() if recorded.arguments[0] in HERE])
def test_the_output_is_that_of_apache(name: str, alone: Mqadmin, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RECORDED[name]
    printed, replayer = replayed(alone, monkeypatch, recorded)
    assert printed.exit_code == 0, printed.err
    assert lines_of(printed.out) == lines_of(recorded.stdout)
    assert printed.err.startswith(f"mqadmin: error: {recorded.error}"[:70] if recorded.error else "")
    assert bool(printed.err) == bool(recorded.error), printed.err
    assert set(replayer.unknown) == ASKED_IN_ADDITION.get(name, set())


@pytest.mark.parametrize("name", [name for name, recorded in RECORDED.items() if recorded.arguments[0] in HERE])
def test_json_is_one_document(name: str, alone: Mqadmin, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RECORDED[name]
    printed, _ = replayed(alone, monkeypatch, recorded, "--json")
    assert printed.exit_code == (1 if recorded.error else 0)
    assert isinstance(printed.json, (dict, list))
    assert ("error" in printed.json) == bool(recorded.error)
