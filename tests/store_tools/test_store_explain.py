"""`explain` shows each field with its position, and why an invalid one is invalid."""

import io
import re
from pathlib import Path

import pytest

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.timer.timer_store import SLOTS_TOTAL, TimerStore
from pocketmq.store_tools.explain.place import PlaceError, explain_place
from pocketmq.store_tools.files.selection import Damage, Selection, select
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.files.value_text import time_text
from tests.store_tools.made_stores import NOW_MS, flip, made, overwrite, unpacked


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("v4_clean", tmp_path_factory.mktemp("golden"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return made(tmp_path / "store", 100)


def drawn(place: object) -> tuple[bool, str]:
    out = io.StringIO()
    is_valid = explain_place(str(place), None, Printer(file=out, width=200))
    return is_valid, out.getvalue()


def field(text: str, name: str) -> list[str]:
    """Return the columns of a field's row."""
    line = next(line for line in text.splitlines() if re.search(rf"  {name} ", line))
    return re.split(r"  +", line.strip())


def test_record_is_shown_field_by_field(golden: Path) -> None:
    is_valid, text = drawn(f"{golden}:2378532")
    assert is_valid and "WRONG" not in text
    assert field(text, "total_size") == [
        "281380",
        "+0",
        "00 00 01 39",
        "total_size",
        "313",
        "bytes; the next record is at 2378845",
    ]
    assert field(text, "magic_code")[2:5] == ["DA A3 20 A7", "magic_code", "0xDAA320A7"]
    assert field(text, "sys_flag")[1:] == ["+36", "00 00 03 01", "sys_flag", "0x301", "body compressed, ZLIB"]
    assert field(text, "store_host")[4] == "127.0.0.1:18911"
    assert field(text, "topic")[4] == '"GoldenCompress"'
    assert field(text, "TAGS")[-2:] == ["ZLIB", "tags code 2756555"]
    assert f"queue unit 0 of GoldenCompress/1 points at it: {golden}/consumequeue/GoldenCompress/1/{0:020}:0" in text
    assert "index/20261121032627241:2860" in text
    # A byte within the record, given by file name, selects the same record.
    assert drawn(f"{golden}/commitlog/{2097152:020}:281400")[1] == text


def test_fields_are_contiguous(root: Path) -> None:
    for record in list(select(StoreFiles(str(root)), Selection(), Damage()))[::9]:
        is_valid, text = drawn(f"{root}:{record.physical_offset}")
        expected = 0
        for line in text.splitlines():
            if re.match(r" *\d+ +\+\d+  ", line) is None:
                continue
            byte, position, shown, name = re.split(r" {2,}", line.strip())[:4]
            assert int(position) == expected and int(byte) == record.physical_offset % 16384 + expected
            size = re.search(r"\.\. (\d+) B", shown)
            expected += int(size[1]) if size else len(shown.split())
            if name == "properties":
                break
        assert is_valid and expected == record.total_size


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (115, "the body has 0x"),
        (7, "records have 0xDAA320A7 or"),
        (30, "the record is at 0"),
        (1, "the file has only 16384"),
    ],
)
def test_damaged_record_shows_the_invalid_field(root: Path, at: int, said: str) -> None:
    flip(root / "commitlog" / f"{0:020}", at)
    is_valid, text = drawn(f"{root}:0")
    assert not is_valid and said in text and "invalid record at physical offset 0" in text
    following = list(select(StoreFiles(str(root)), Selection(), Damage()))[0].physical_offset
    assert f"the next valid record is at {following}" in text


def test_end_of_a_file_and_of_the_log(root: Path) -> None:
    records = list(select(StoreFiles(str(root)), Selection(), Damage()))
    last = [record for record in records if record.physical_offset < 16384][-1]
    is_valid, text = drawn(f"{root}:{last.physical_offset + last.total_size}")
    assert is_valid and "BLANK" in text and "the log continues at physical offset 16384" in text
    assert "nothing is written here" in drawn(f"{root}:{records[-1].physical_offset + records[-1].total_size}")[1]


def test_queue_units_are_compared_with_their_records(golden: Path, root: Path) -> None:
    is_valid, text = drawn(f"{golden}/consumequeue/SCHEDULE_TOPIC_XXXX/1/{0:020}:25")
    assert is_valid and "queue unit 1 of SCHEDULE_TOPIC_XXXX/1, byte 20" in text
    assert "to be delivered at" in field(text, "tags_code")[-1] and "5000 ms after it was stored" in text
    path = root / "consumequeue" / "Topic1" / "1" / f"{0:020}"
    assert "String.hashCode of 'Tag1'" in drawn(f"{path}:0")[1]
    flip(path, 18)
    is_valid, text = drawn(f"{path}:0")
    assert not is_valid and "WRONG: 'Tag1' has the hash" in text
    overwrite(path, 0, (200).to_bytes(8, "big"))
    assert "no valid record at physical offset 200" in drawn(f"{path}:0")[1]
    assert "unwritten" in drawn(f"{root}/consumequeue/Topic1/2/{0:020}:399")[1]


def test_index_and_checkpoint_are_shown(golden: Path) -> None:
    index = golden / "index" / "20261121032625140"
    assert field(drawn(f"{index}:0")[1], "index_count")[4:] == [
        "2000",
        "number of the next entry; 1 in an empty file (0 before its first use)",
    ]
    assert "500 slots" in drawn(f"{index}:3")[1]
    assert "at byte 23020" in drawn(f"{index}:48")[1]
    is_valid, text = drawn(f"{index}:2060")
    assert is_valid and "entry 1 of" in text and "SCHEDULE_TOPIC_XXXX/0 @ 0" in text and "delay-0" in text
    assert "2026-11-21" in field(drawn(golden / "checkpoint")[1], "physic_msg_timestamp_ms")[-1]


def test_timer_files_are_shown(tmp_path: Path) -> None:
    (tmp_path / "timerlog").mkdir()
    timers = TimerStore(
        FileDisk(),
        lambda name: f"{tmp_path}/{name.rpartition('/')[2]}",
        log_file_size=1 << 12,
    )
    timers.recover(NOW_MS, 0, 0)
    time_ms = timers.put(NOW_MS + 10_000, NOW_MS, 4096, 200, 77)
    timers.mark(NOW_MS, 1)
    timers.flush(timers.state, NOW_MS)
    timers.close()
    shown = drawn(f"{tmp_path}/timerlog/{0:020}:51")[1]
    assert field(shown, "physical_offset")[0:5:4] == ["28", "4096"] and "slot of " + time_text(time_ms) in shown
    slot = time_ms // 1000 % (2 * SLOTS_TOTAL)
    shown = drawn(f"{tmp_path}/timerwheel:{slot * 32 + 5}")[1]
    assert f"slot {slot} of" in shown and field(shown, "message_count")[4] == "1"
    for at, name, value in ((0, "queue_offset", "1"), (56, "delivered_before_ms", str(NOW_MS))):
        assert field(drawn(f"{tmp_path}/timercheck:{at}")[1], name)[4] == value


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{root}", "is not a valid place: expected ROOT:PHYSICAL_OFFSET"),
        ("{root}:99999999", "physical offsets 0 to 32768"),
        ("{root}/nowhere:0", "there is no file or folder"),
        ("{root}/checkpoint:5000", "has 4096 bytes"),
        ("{root}/config/topics.json:0", "/config/topics.json is unknown: expected ROOT:PHYSICAL_OFFSET"),
        ("{root}:-1", "is not a valid place"),
    ],
)
def test_invalid_place_is_refused_with_explanation(root: Path, place: str, said: str) -> None:
    with pytest.raises(PlaceError, match=said):
        drawn(place.format(root=root))
