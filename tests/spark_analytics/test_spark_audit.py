"""The audit's findings, and the differences that a broker repairs at its next start."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT, RECORD_FIXED, field_position
from tests.spark_analytics.spark_logs import LogBuilder, write_queues
from tests.support.amount import cases

pytestmark = pytest.mark.spark

Command = Callable[..., int]


@pytest.fixture(params=cases(["direct"], ["direct", "spark"]))
def command(request: pytest.FixtureRequest, command: Command) -> Command:
    """The command line with each engine."""
    return lambda name, *arguments: command(name, *arguments, "--engine", request.param)


UNIT_SIZE = CONSUME_QUEUE_UNIT_STRUCT.size


def findings(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return shown


def test_golden_stores_are_consistent(
    command: Command, golden_stores: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("audit", golden_stores["v4_clean"], golden_stores["v5_clean"], "--index") == 0
    assert capsys.readouterr().out == "valid: 2,602 records in 68 queues\n"


def test_undispatched_record_after_kill_is_a_note(
    command: Command, golden_stores: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("audit", golden_stores["v4_kill9"], "--json") == 0
    assert {row["severity"] for row in findings(capsys)} <= {"note"}


def test_torn_last_record_is_not_a_finding(
    command: Command, golden_stores: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("audit", golden_stores["v4_torn_body"]) == 0
    assert capsys.readouterr().out == "valid: 520 records in 38 queues\n"


def log_of(queue_offsets: list[int], file_size: int = 10_000) -> LogBuilder:
    """Return a log of one queue with a record for each given queue offset."""
    log = LogBuilder(file_size)
    position = field_position(RECORD_FIXED, "queue_offset", 0)
    for number, queue_offset in enumerate(queue_offsets):
        start = log.append(body=b"body %02d" % number) + position - log.files[-1][0]
        log.files[-1][1][start : start + 8] = queue_offset.to_bytes(8, "big")
    return log


def damaged_store(folder: Path) -> tuple[Path, list[int]]:
    """Create a queue of twelve records, some of them damaged or with wrong units; return (store, physical offsets)."""
    log = log_of(list(range(12)))
    store = write_queues(log.write(folder), up_to=log.physical_offsets[10])
    own = log.physical_offsets
    path = next((store / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[data.index(b"body 02")] ^= 1
    path.write_bytes(data)
    queue = next((store / "consumequeue" / "T" / "3").iterdir())
    units = bytearray(queue.read_bytes())
    size = own[1] - own[0]
    CONSUME_QUEUE_UNIT_STRUCT.pack_into(units, 4 * UNIT_SIZE, own[4] + 1, size, 0)
    CONSUME_QUEUE_UNIT_STRUCT.pack_into(units, 5 * UNIT_SIZE, own[5], size + 1, 0)
    CONSUME_QUEUE_UNIT_STRUCT.pack_into(units, 10 * UNIT_SIZE, own[11] + 500, size, 0)
    queue.write_bytes(units)
    return store, own


@pytest.mark.parametrize("command", ["direct", "spark"], indirect=True)
def test_all_kinds_of_damage_are_found(command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, own = damaged_store(tmp_path)
    assert command("audit", store, "--json") == 1
    seen = {(row["severity"], row["kind"], row["physicalOffset"]) for row in findings(capsys)}
    assert seen >= {
        ("error", "wrong CRC", own[2]),
        ("error", "record without unit", own[4]),
        ("error", "unit without record", own[4] + 1),
        ("error", "unit differs", own[5]),
        ("error", "unit without record", own[11] + 500),
    }
    assert command("audit", store) == 1
    text = capsys.readouterr().out
    assert "NOT VALID: 12 records in 1 queues" in text


def test_queue_that_lags_behind_the_log_is_a_note(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of([0, 1, 2, 3])
    store = write_queues(log.write(tmp_path), up_to=log.physical_offsets[2])
    assert command("audit", store, "--json") == 0
    (found,) = findings(capsys)
    assert (found["severity"], found["queueOffset"], found["count"]) == ("note", 2, 2)
    assert found["detail"] == f"not dispatched yet; 2 in 1 queues, the last at {log.physical_offsets[3]}"


def overwrite(store: Path, physical_offset: int) -> None:
    """Overwrite the beginning of a record in the first file."""
    path = min((store / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[physical_offset : physical_offset + 8] = b"\xff" * 8
    path.write_bytes(data)


def test_damaged_bytes_and_gaps(command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of(list(range(12)), file_size=700)
    store = log.write(tmp_path)
    overwrite(store, log.physical_offsets[2])
    write_queues(store, mode="DROPMALFORMED")
    assert command("audit", store, "--json") == 1
    seen = {(row["kind"], row["physicalOffset"]) for row in findings(capsys)}
    assert seen >= {("damaged bytes", log.physical_offsets[2]), ("gap", None)}


def test_damaged_last_record_is_found_through_its_queue_unit(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of(list(range(6)))
    store = write_queues(log.write(tmp_path))
    overwrite(store, log.physical_offsets[3])
    assert command("audit", store, "--json") == 1
    seen = {(row["severity"], row["kind"], row["physicalOffset"]) for row in findings(capsys)}
    damaged = log.physical_offsets[3]
    assert seen >= {("error", "damaged bytes", damaged), ("error", "unit without record", damaged)}


def test_audit_refuses_single_log_file(golden_stores: dict[str, Path], command: Command, capsys: Any) -> None:
    file = sorted((golden_stores["v4_clean"] / "commitlog").iterdir())[0]
    assert command("audit", file) == 2
    assert f"error: no store at {file}" in capsys.readouterr().err
