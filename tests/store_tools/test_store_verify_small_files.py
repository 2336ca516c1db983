"""`verify` checks every small file of a store, with one finding per damaged file."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.config_document import encode_document, sealed
from pocketmq.store.format.layout import TIMER_LOG_UNIT_SIZE, TIMER_WHEEL_SLOT_DTYPE
from pocketmq.store.recovery import abort_mark
from pocketmq.store.timer.timer_store import TimerStore
from pocketmq.store_tools.check.finding import Findings
from pocketmq.store_tools.check.report import as_document
from pocketmq.store_tools.check.small_files import check_small_files
from pocketmq.store_tools.check.timer_check import TimerCheck, check_level_offsets
from pocketmq.store_tools.files.store_files import StoreFiles
from tests.store_tools.made_stores import NOW_MS, made, verified, write_topics
from tests.support.amount import cases


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = made(tmp_path / "store", 20)
    write_topics(root, "Topic0", "Topic1", "SCHEDULE_TOPIC_XXXX")
    return root


def small_findings(root: Path) -> list[tuple[str, str]]:
    """Return (kind, file name) of each finding."""
    findings = Findings()
    check_small_files(StoreFiles(str(root)), findings)
    return [(finding.kind, Path(finding.path).name) for finding in findings.kept]


def missed_bits(path: Path, bits: range) -> list[int]:
    """Return the bits of a file that can be flipped without a finding; the file is restored."""
    data, root, missed = path.read_bytes(), path.parents[0], []
    for bit in bits:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        if [name for _, name in small_findings(root)] != [path.name]:
            missed.append(bit)
    path.write_bytes(data)
    return missed


def test_every_flipped_bit_of_abort_and_clean_stop_is_found(root: Path) -> None:
    (root / "abort").write_bytes(abort_mark.encode(FileDisk().boot_mark(str(root))))
    assert small_findings(root) == []
    for name in ("abort", "cleanStop.json"):
        assert missed_bits(root / name, range(0, (root / name).stat().st_size * 8, 13)) == []


def test_every_flipped_checkpoint_bit_is_found_except_apaches_spare_bytes(root: Path) -> None:
    assert small_findings(root) == []
    (root / "cleanStop.json").unlink()
    assert {bit // 8 for bit in missed_bits(root / "checkpoint", range(0, 320 * 8, 7))} == set(range(40, 64))


@pytest.mark.parametrize(
    "name, data, kind",
    [
        ("checkpoint", b"", "checkpoint"),
        ("checkpoint", None, "checkpoint"),
        ("cleanStop.json", b"", "clean stop"),
        ("cleanStop.json.bak", b"{}", "clean stop"),
        ("abort", b"1\nsome other mark\n", "abort"),
        ("lock", b"lick", "lock"),
        ("config/topics.json", b"{", "config"),
        ("config/topics.json", b"", "config"),
        ("config/topics.json.bak", b"\0" * 100, "config"),
        ("config/consumerOffset.json", b"[]", "config"),
        ("quarantine/log.jsonl", b"{}\n", "quarantine"),
        ("quarantine/log.jsonl", b'{"start": 5, "end": 9, "file": "gone"}\n', "quarantine"),
        ("config/delayOffset.json", b'{"offsetTable":{3:5000}}', "delay offsets"),
        ("config/delayOffset.json", b'{"offsetTable":{3:-1}}', "delay offsets"),
    ],
)
def test_each_damaged_file_is_one_finding(root: Path, name: str, data: bytes | None, kind: str) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    result = verified(root)
    assert [(finding.kind, finding.path) for finding in result.findings.kept] == [(kind, str(path))]
    assert result.exit_code == 2


def test_small_files_of_apache_brokers_are_no_damage(root: Path) -> None:
    for mark in (b"", b"4711", b"4711\n"):
        (root / "abort").write_bytes(mark)
        assert small_findings(root) == []
    (root / "lock").write_bytes(b"")
    page = bytearray((root / "checkpoint").read_bytes())
    for position in (0, 8, 16):
        time_ms = int.from_bytes(page[position : position + 8], "big") + 12_345
        page[position : position + 8] = time_ms.to_bytes(8, "big")
    (root / "checkpoint").write_bytes(page)
    assert small_findings(root) == [], "Apache has updated the times and kept the checksum"


def test_table_with_wrong_checksum_is_found(root: Path) -> None:
    path = root / "config/topics.json"
    document = {"topicConfigTable": json.loads(path.read_text())["topicConfigTable"], "dataVersion": {"counter": 1}}
    path.write_bytes(sealed(encode_document(document)))
    assert small_findings(root) == []
    path.write_bytes(path.read_bytes().replace(b'"counter": 1', b'"counter": 3'))
    assert small_findings(root) == [("config", "topics.json")]


def test_json_lists_the_worst_findings_first(root: Path) -> None:
    (root / "config/topics.json").write_bytes(b"{")
    log = root / f"commitlog/{0:020}"
    data = bytearray(log.read_bytes())
    data[4] ^= 1
    log.write_bytes(data)
    severities = [finding["severity"] for finding in as_document(verified(root))["findings"]]
    assert severities[0] == "damage" and severities == sorted(severities, key=["damage", "differs", "note"].index)


# --- timers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def timers(root: Path) -> Path:
    """The store of `root` with timer files, whose units point at records in the log."""
    (root / "config").mkdir(exist_ok=True)
    timers = TimerStore(
        FileDisk(),
        lambda name: str(root / name),
        log_file_size=4096,
        slots_total=120,
        roll_window_slots=30,
    )
    timers.recover(NOW_MS, 1 << 20, 0)
    for number in range(20):
        timers.put(NOW_MS + 10_000 + number % 5 * 1000, NOW_MS, 100 * number, 200, 7)
    timers.mark(NOW_MS + 1000, 0)
    timers.flush(timers.state, NOW_MS)  # type: ignore[arg-type]  # it was marked
    timers.close()
    return root


def timer_findings(root: Path) -> list[tuple[str, str, int]]:
    findings = Findings()
    files = StoreFiles(str(root))
    TimerCheck(files, findings, NOW_MS, running=False).run()
    check_level_offsets(files, findings)
    return [(finding.kind, Path(finding.path).name, finding.position) for finding in findings.kept]


def overwritten(position: int, number: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[position : position + 8] = number.to_bytes(8, "big", signed=True)

    return change


@pytest.mark.parametrize("position, number", [(0, -5), (0, 1 << 62), (8, -1), (8, 1 << 40), (16, 1), (16, -1)])
def test_impossible_values_in_timercheck_are_found(timers: Path, position: int, number: int) -> None:
    assert timer_findings(timers) == []
    path = timers / "config/timercheck"
    data = bytearray(path.read_bytes())
    overwritten(position, number)(data)
    path.write_bytes(data)
    assert ("timercheck", "timercheck", position) in timer_findings(timers)


def test_every_flipped_bit_of_timercheck_is_found(timers: Path) -> None:
    path = timers / "config/timercheck"
    data = path.read_bytes()
    for bit in (*range(0, 640 * 8, cases(11, 3)), *range(640 * 8, len(data) * 8, cases(401, 101))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert "timercheck" in {kind for kind, _, _ in timer_findings(timers)}, f"bit {bit}"


def test_timercheck_without_timer_log_is_found(timers: Path) -> None:
    for path in (timers / "timerlog").iterdir():
        path.unlink()
    assert ("timercheck", "timercheck", 8) in timer_findings(timers)
    (timers / "config/timercheck").write_bytes(b"short")
    assert ("timercheck", "timercheck", -1) in timer_findings(timers)


@pytest.mark.parametrize("position, number", [(4, 1 << 40), (4, -7), (28, -1), (28, 1 << 40), (36, 0)])
def test_impossible_timer_log_unit_is_found(timers: Path, position: int, number: int) -> None:
    path = timers / "timerlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    overwritten(3 * TIMER_LOG_UNIT_SIZE + position, number)(data)
    path.write_bytes(data)
    assert timer_findings(timers) == [("timer log", path.name, 3 * TIMER_LOG_UNIT_SIZE)]


@pytest.mark.parametrize("name, value", [("last_position", 1 << 40), ("first_position", -9), ("time", 1 << 40)])
def test_wheel_slot_with_wrong_position_or_time_is_found(timers: Path, name: str, value: int) -> None:
    path = timers / "timerwheel"
    slots = np.frombuffer(path.read_bytes(), TIMER_WHEEL_SLOT_DTYPE).copy()
    number = int(np.flatnonzero(slots["time"] > 0)[0])
    slots[name][number] = value
    path.write_bytes(slots.tobytes())
    assert timer_findings(timers) == [("timer wheel", "timerwheel", number * slots.itemsize)]
