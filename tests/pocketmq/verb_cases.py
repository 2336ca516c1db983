"""Cases of `pocketmq topic|group|dlq VERB` that hold at any broker: PocketMQ's here, Apache's in tests/interop."""

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pocketmq.cli.main import main
from tests.interop.patience import wait
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S


class Printed(NamedTuple):
    exit_code: int
    out: str
    err: str


class Verbs:
    """Runs commands at the servers of a name server, in this process."""

    def __init__(self, namesrv: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch
        monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
        monkeypatch.setenv("NAMESRV_ADDR", namesrv)

    def run(self, line: str, typed: str = "") -> Printed:
        """Run `pocketmq LINE`. `typed`: standard input."""
        self._capsys.readouterr()
        self._monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            main(line.split())
        return Printed(int(str(ended.value.code or 0)), *self._capsys.readouterr())

    def told(self, line: str, typed: str = "") -> str:
        """Run a command that must succeed; return what it printed."""
        done = self.run(line, typed)
        assert done.exit_code == 0, done
        return done.out

    def json(self, line: str) -> Any:
        """Run a command with `--json` that must succeed; return its document."""
        return json.loads(self.told(f"{line} --json"))

    def refused(self, line: str, typed: str = "") -> str:
        """Run a command that must fail; return its errors."""
        done = self.run(line, typed)
        assert done.exit_code == 1, done
        return done.err


def row_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [row for row in rows if row["name"] == name]
    return found


def topics(verbs: Verbs, connection: Connection, with_types: bool = True) -> None:
    """Create, list, describe, change and delete topics."""
    assert "created topic Made (NORMAL) with 3 queues" in verbs.told("topic create Made --queues 3")
    assert "topic 'Made' exists already at " in verbs.refused("topic create Made")
    if with_types:
        verbs.told("topic create Typed --type FIFO")
        assert row_of(verbs.json("topic ls"), "Typed")["type"] == "FIFO"
        verbs.told("topic set Typed --type DELAY")
        assert row_of(verbs.json("topic ls"), "Typed")["type"] == "DELAY"
    else:
        assert "knows no types of topics" in verbs.refused("topic create Typed --type FIFO")
        assert "Typed" not in verbs.told("topic ls")
    for queue_id, count in enumerate((2, 0, 1)):
        for number in range(count):
            connection.send("Made", queue_id, b"%d" % number)
        connection.wait_for_max_offset("Made", queue_id, count)
    listed = row_of(verbs.json("topic ls"), "Made")
    assert (listed["type"], listed["queues"], listed["messages"]) == ("NORMAL", 3, 3)
    assert "TBW102" not in verbs.told("topic ls") and "TBW102" in verbs.told("topic ls --all")
    about = verbs.json("topic describe Made")
    assert [(row["minOffset"], row["maxOffset"]) for row in about["queueOffsets"]] == [(0, 2), (0, 0), (0, 1)]
    assert about["queueOffsets"][0]["lastMessageTimestamp"] and not about["queueOffsets"][1]["lastMessageTimestamp"]
    assert about["configs"][0]["perm"] == "rw"
    verbs.told("topic set Made --perm r")
    config = verbs.json("topic describe Made")["configs"][0]
    assert (config["perm"], config["readQueues"]) == ("r", 3), "what is not named stays"
    less = "topic set Made --queues 2"
    assert "1 message in the queues from 2 on are not read" in verbs.refused(less, "n\n")
    assert verbs.json("topic describe Made")["queues"] == 3
    verbs.told(less, "y\n")
    assert verbs.json("topic describe Made")["queues"] == 2
    assert "Type Made to continue" in verbs.refused("topic delete Made", "y\n")
    assert "deleted topic Made" in verbs.told("topic delete Made", "Made\n")
    assert "topic 'Made' does not exist" in verbs.refused("topic describe Made")
    assert "topic of the system" in verbs.refused("topic delete TBW102 --yes")


def groups(verbs: Verbs, connection: Connection, single_queues: bool = True) -> None:
    """Create, list, describe, reset and delete consumer groups. `single_queues`: of an online group, too."""
    verbs.told("group create Made --retries 5")
    assert "'Made' exists already" in verbs.refused("group create Made")
    assert row_of(verbs.json("group ls"), "Made") == {"name": "Made", "mode": None, "members": 0, "lag": 0}
    assert next(iter(verbs.json("group describe Made")["configs"].values()))["retryMaxTimes"] == 5
    connection.create_topic("Read", 2)
    for queue_id in (0, 1):
        for number in range(4):
            connection.send("Read", queue_id, b"%d" % number)
        connection.wait_for_max_offset("Read", queue_id, 4)
    connection.subscribe("Reader", "Read")
    for queue_id, consumer_offset in enumerate((1, 3)):
        connection.commit("Reader", "Read", queue_id, consumer_offset)
    listed = row_of(verbs.json("group ls"), "Reader")
    assert (listed["mode"], listed["members"], listed["lag"]) == ("pull", 1, 4)
    about = verbs.json("group describe Reader")
    places = [(row["queue"], row["brokerOffset"], row["consumerOffset"], row["lag"]) for row in about["queues"]]
    assert [place for place, row in zip(places, about["queues"], strict=True) if row["topic"] == "Read"] == [
        (0, 4, 1, 3),
        (1, 4, 3, 1),
    ]
    assert [(one["client"], one["language"]) for one in about["connections"]] == [("wire-Reader", "JAVA")]
    assert ("Read", "*") in [(one["topic"], one["expression"]) for one in about["subscriptions"]]
    assert "wire-Reader" in verbs.told("group describe Reader")
    assert [(one["group"], one["lag"]) for one in verbs.json("topic describe Read")["groups"]] == [("Reader", 4)]
    assert "consumer group 'Nobody' does not exist" in verbs.refused("group describe Nobody")

    def offsets() -> list[int]:
        return [connection.consumer_offset("Reader", "Read", queue_id) for queue_id in (0, 1)]

    reset = "group reset Reader Read --to"
    planned = verbs.json(f"{reset} earliest --dry-run")
    assert [(row["offsetBefore"], row["offset"], row["lag"]) for row in planned] == [(1, 0, 4), (3, 0, 4)]
    assert offsets() == [1, 3]
    if single_queues:
        verbs.told(f"{reset} 2 --queue 1")
        assert offsets() == [1, 2]
        assert "offset 9 is not within queue 0" in verbs.refused(f"{reset} 9")
        verbs.told(f"{reset} earliest")
        assert offsets() == [0, 0]
        assert "group Reader skips 8 messages of Read" in verbs.refused(f"{reset} latest", "n\n")
        verbs.told(f"{reset} latest", "y\n")
        assert offsets() == [4, 4]
        verbs.told(f"{reset} 2001-01-01")
        assert offsets() == [0, 0]
    else:
        assert "cannot reset single queues while consumers are connected" in verbs.refused(f"{reset} 2 --queue 1")
    assert "topic 'Read' has no queue 7" in verbs.refused(f"{reset} earliest --queue 7")
    assert "Type Reader to continue" in verbs.refused("group delete Reader", "no\n")
    assert "deleted consumer group Made" in verbs.told("group delete Made", "Made\n")
    assert "Made" not in verbs.told("group ls")


def resets_of_an_offline_group(verbs: Verbs, connection: Connection) -> None:
    """Reset the offsets of a group whose consumers do not run."""
    connection.create_topic("Left", 2)
    verbs.told("group create Leaver")
    connection.create_topic("%RETRY%Leaver", 1)
    for queue_id in (0, 1):
        for number in range(3):
            connection.send("Left", queue_id, b"%d" % number)
        connection.wait_for_max_offset("Left", queue_id, 3)
        connection.commit("Leaver", "Left", queue_id, 3)

    def offsets() -> list[int]:
        return [connection.consumer_offset("Leaver", "Left", queue_id) for queue_id in (0, 1)]

    verbs.told("group reset Leaver Left --to 1 --queue 1")
    assert offsets() == [3, 1]
    verbs.told("group reset Leaver Left --to earliest")
    assert offsets() == [0, 0]
    verbs.told("group reset Leaver Left --to latest --yes")
    assert offsets() == [3, 3]


def dead_letters(verbs: Verbs, connection: Connection, folder: Path) -> None:
    """List, show, export, send again and delete dead letters."""
    connection.create_topic("Bought", 1)
    connection.subscribe("Shop", "Bought")
    for number in range(4):
        about = {"UNIQ_KEY": f"ID-{number}", "KEYS": f"order-{number}", "TAGS": "paid", "amount": str(number)}
        connection.send("Bought", 0, b"order %d" % number, about)
    connection.wait_for_max_offset("Bought", 0, 4)
    for sent in connection.read_queue("Bought", 0, "Shop")[:3]:
        connection.send_back("Shop", sent, -1)
    dead = "%DLQ%Shop"
    wait(lambda: "Shop" in verbs.told("dlq ls"), "the dead letters' topic", PATIENCE_S)
    connection.wait_for_max_offset(dead, 0, 3)

    (listed,) = [row for row in verbs.json("dlq ls") if row["group"] == "Shop"]
    assert listed["messages"] == 3 and listed["lastTimestamp"]
    shown = verbs.json("dlq show Shop")
    assert [(one["id"], one["topic"], one["body"], one["resent"]) for one in shown] == [
        (f"ID-{number}", "Bought", f"order {number}", False) for number in range(3)
    ]
    assert "more dead letters than --limit 1" in verbs.run("dlq show Shop --limit 1").err

    file = folder / "dead.jsonl"
    assert "wrote 3 dead letters" in verbs.told(f"dlq export Shop {file}")
    assert [json.loads(line)["properties"]["KEYS"] for line in file.read_text().splitlines()] == [
        "order-0",
        "order-1",
        "order-2",
    ]
    assert "File exists" in verbs.refused(f"dlq export Shop {file}")

    assert "no dead letter with the id ID-3" in verbs.refused("dlq resend Shop --id ID-3 --yes")
    assert "ID-1 is sent to Bought again" in verbs.told("dlq resend Shop --id ID-1 --yes")
    connection.wait_for_max_offset("Bought", 0, 5)
    again = connection.read_queue("Bought", 0, "Shop")[4]
    assert (again.body, again.reconsume_times) == (b"order 1", 0)
    assert {name: again.properties[name] for name in ("UNIQ_KEY", "KEYS", "TAGS", "amount")} == {
        "UNIQ_KEY": "ID-1",
        "KEYS": "order-1",
        "TAGS": "paid",
        "amount": "1",
    }
    assert "1 sent again" not in verbs.refused("dlq resend Shop --all", "n\n")
    assert "2 sent again, 1 were sent again before, 0 failed" in verbs.told("dlq resend Shop --all", "y\n")
    connection.wait_for_max_offset("Bought", 0, 7)
    wait(lambda: all(one["resent"] for one in verbs.json("dlq show Shop")), "all of them in the index", PATIENCE_S)
    assert "0 sent again, 3 were sent again before, 0 failed" in verbs.told("dlq resend Shop --all --yes")
    assert connection.max_offset("Bought", 0) == 7, "none is sent twice"
    verbs.told("dlq resend Shop --id ID-0 --again --yes")
    connection.wait_for_max_offset("Bought", 0, 8)

    assert "Type Shop to continue" in verbs.refused("dlq purge Shop", "y\n")
    assert "deleted 3 dead letters" in verbs.told("dlq purge Shop", "Shop\n")
    assert "has no dead letters" in verbs.refused("dlq show Shop")
    assert "Shop" not in verbs.told("dlq ls")
