"""`pocketmq topic|group|dlq VERB` at PocketMQ's own servers; tests/interop runs the same cases at Apache's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.processes import Server, start_up
from tests.interop.wire import Connection
from tests.pocketmq import verb_cases
from tests.pocketmq.verb_cases import Verbs


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start_up(tmp_path_factory.mktemp("up"), "--memory")
    yield server
    server.stop()


@pytest.fixture
def verbs(up: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verbs:
    return Verbs(up.address, capsys, monkeypatch)


@pytest.fixture
def connection(verbs: Verbs) -> Iterator[Connection]:
    """A raw connection to the broker."""
    config = verbs.json("topic describe TBW102")["configs"][0]
    with Connection(config["address"]) as opened:
        yield opened


def test_topics(verbs: Verbs, connection: Connection) -> None:
    verb_cases.topics(verbs, connection)


def test_groups(verbs: Verbs, connection: Connection) -> None:
    verb_cases.groups(verbs, connection)


def test_resets_of_an_offline_group(verbs: Verbs, connection: Connection) -> None:
    verb_cases.resets_of_an_offline_group(verbs, connection)


def test_dead_letters(verbs: Verbs, connection: Connection, tmp_path: Path) -> None:
    verb_cases.dead_letters(verbs, connection, tmp_path)
