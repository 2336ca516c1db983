"""`pocketmq topic|group|dlq VERB` at PocketMQ's own servers; tests/interop runs the same cases at Apache's."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.admin.api import dead_letters
from pocketmq.cli.cluster import Layout, ProcessCluster
from pocketmq.cli.processes import Server, start_up
from tests.interop.patience import wait
from tests.interop.wire import Connection, Record
from tests.patience import PATIENCE_S
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


def died(connection: Connection, group: str, topic: str, body: bytes, properties: dict[str, str], sys_flag: int = 0) -> None:
    """Send a message to a topic of one queue, and let the group's consumer give it up once it is there."""
    connection.create_topic(topic, 1)
    connection.subscribe(group, topic)
    connection.send(topic, 0, body, properties, sys_flag)
    wait(lambda: connection.max_offset(topic, 0) == 1, "the message", PATIENCE_S)
    connection.send_back(group, connection.read_queue(topic, 0, group)[0], -1)


def only_copy(verbs: Verbs, connection: Connection, group: str, topic: str) -> Record:
    """Send the dead letters of a group again, twice; return the only copy."""
    assert "1 sent again" in verbs.told(f"dlq resend {group} --all --yes")
    assert "0 sent again, 1 were sent again before" in verbs.told(f"dlq resend {group} --all --yes")
    _, copy = connection.read_queue(topic, 0, group)
    return copy


def test_dead_letter_without_an_id_is_sent_again_once(verbs: Verbs, connection: Connection) -> None:
    died(connection, "NoId", "NoIds", b"nameless", {"a": "b"})
    copy = only_copy(verbs, connection, "NoId", "NoIds")
    assert (copy.body, copy.properties["a"]) == (b"nameless", "b")


def test_compressed_dead_letter_stays_compressed(verbs: Verbs, connection: Connection) -> None:
    body = zlib.compress(b"x" * 10_000)
    died(connection, "Small", "Smalls", body, {"UNIQ_KEY": "C"}, sys_flag=1)
    assert verbs.json("dlq show Small")[0]["body"] == "x" * 10_000
    copy = only_copy(verbs, connection, "Small", "Smalls")
    assert (copy.body, copy.sys_flag & 0x701) == (body, 1)


def test_dead_letter_that_was_delayed_is_sent_again_without_its_delay(verbs: Verbs, connection: Connection) -> None:
    died(connection, "Late", "Lates", b"late", {"UNIQ_KEY": "L", "TIMER_DELAY_MS": "50"})
    copy = only_copy(verbs, connection, "Late", "Lates")
    assert [name for name in copy.properties if name.startswith("TIMER_DELAY")] == []


def test_dead_letter_that_dies_again_is_another_one(verbs: Verbs, connection: Connection) -> None:
    died(connection, "Twice", "Twices", b"bad", {"UNIQ_KEY": "B"})
    connection.send_back("Twice", only_copy(verbs, connection, "Twice", "Twices"), -1)
    assert [one["resent"] for one in verbs.json("dlq show Twice")] == [True, False]
    assert "1 sent again, 1 were sent again before" in verbs.told("dlq resend Twice --all --yes")


def test_dead_letter_whose_topic_is_gone_is_named(verbs: Verbs, connection: Connection) -> None:
    died(connection, "Orphan", "Orphans", b"x", {"UNIQ_KEY": "O"})
    verbs.told("topic delete Orphans --yes")
    failed = verbs.refused("dlq resend Orphan --all --yes")
    assert failed == (
        "pocketmq: error: O: its topic 'Orphans' does not exist any more; `pocketmq topic create Orphans` creates it\n"
    )


def test_resend_stops_if_it_could_not_know_what_it_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "INDEX_WAIT_S", 0.5)
    server = start_up(tmp_path / "up", "--memory", "--set", "messageIndexEnable=false")
    try:
        verbs = Verbs(server.address, capsys, monkeypatch)
        with Connection(verbs.json("topic describe TBW102")["configs"][0]["address"]) as connection:
            died(connection, "Blind", "Blinds", b"x", {"UNIQ_KEY": "X"})
            assert "(messageIndexEnable=false?); nothing more is sent" in verbs.refused("dlq resend Blind --all --yes")
    finally:
        server.stop()


def test_dead_letters_on_standard_output_can_be_imported(verbs: Verbs, connection: Connection, tmp_path: Path) -> None:
    died(connection, "Moved", "Moves", b"\xff\x00", {"UNIQ_KEY": "M"})
    file = tmp_path / "dead.jsonl"
    file.write_text(verbs.told("dlq export Moved -"))
    assert json.loads(file.read_text())["topic"] == "%DLQ%Moved"
    assert verbs.run(f"store import {tmp_path}/other {file}").exit_code == 0
    assert "bodyHex" in verbs.told(f"store dump {tmp_path}/other --body hex")


def test_failure_with_json_has_no_document(verbs: Verbs) -> None:
    done = verbs.run("topic describe Nowhere --json")
    assert (done.exit_code, done.out) == (1, "")


def test_words_of_other_tools(verbs: Verbs) -> None:
    verbs.told("topic add Worded")
    assert "Worded" in verbs.told("topic list")
    assert verbs.told("topic info Worded") == verbs.told("topic describe Worded")
    verbs.told("topic rm Worded --yes")
    assert "list (ls)" in verbs.told("group --help")


def test_two_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is made at both, changed at one; a group is reset at one; a dead letter returns to its own broker."""
    settings = {"mappedFileSizeCommitLog": str(1 << 20)}
    with ProcessCluster(tmp_path, Layout(2, 0), settings=settings) as cluster:
        verbs = Verbs(cluster.namesrv_address, capsys, monkeypatch)
        verbs.told("topic create Wide --queues 2")
        verbs.told("topic create Narrow --broker broker-b")
        assert verb_cases.row_of(verbs.json("topic ls"), "Narrow")["brokers"] == ["broker-b"]
        wide = verb_cases.row_of(verbs.json("topic ls"), "Wide")
        assert (wide["queues"], wide["brokers"]) == (4, ["broker-a", "broker-b"])
        verbs.told("topic set Wide --queues 1 --broker broker-b")
        assert [one["readQueues"] for one in verbs.json("topic describe Wide")["configs"]] == [2, 1]
        with Connection(cluster.nodes["broker-b"].address) as connection:
            connection.subscribe("Group", "Wide")
            connection.send("Wide", 0, b"x", {"UNIQ_KEY": "X"})
            (sent,) = connection.read_queue("Wide", 0, "Group")
            connection.send_back("Group", sent, -1)
            planned = verbs.json("group reset Group Wide --to latest --broker broker-b --dry-run")
            assert [(one["broker"], one["queue"], one["offset"]) for one in planned] == [("broker-b", 0, 1)]
            verbs.told("group reset Group Wide --to latest --broker broker-b --yes")
            assert connection.consumer_offset("Group", "Wide", 0) == 1
            assert "X is sent to Wide again: broker-b queue 0 @ 1" in verbs.told("dlq resend Group --all --yes")
        verbs.told("topic delete Wide --yes")
        assert "Wide" not in verbs.told("topic ls")
        verbs.told("group delete Group --yes")
        assert [one["name"] for one in verbs.json("group ls")] == []
