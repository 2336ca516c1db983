import contextlib
import errno
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.store.disk.config_file import ConfigFile, RowsWriter
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.config_document import SEAL_KEY, check_seal, decode_document, encode_document, sealed
from tests.golden import linear
from tests.store.power_cut_disk import Fault, PowerCutDisk, Stopped

OFFSETS_OF_4_9_4 = b'{\n\t"offsetTable":{\n\t\t"T@G":{0:111,1:127\n\t\t},\n\t\t"%RETRY%G@G":{0:0\n\t\t}\n\t}\n}'
OFFSETS_OF_5 = b'{"dataVersion":{"stateVersion":7},"offsetTable":{"T@G":{\n\t0:12,\n\t-1 :13}}}'


def config_file(tmp_path: Path, name: str = "consumerOffset.json") -> ConfigFile:
    return ConfigFile(FileDisk(), str(tmp_path / name))


def test_bare_number_keys_are_read() -> None:
    assert decode_document(OFFSETS_OF_4_9_4) == {"offsetTable": {"T@G": {"0": 111, "1": 127}, "%RETRY%G@G": {"0": 0}}}
    assert decode_document(OFFSETS_OF_5)["offsetTable"] == {"T@G": {"0": 12, "-1": 13}}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values))
def test_plain_json_is_read_unchanged(document: dict[str, object]) -> None:
    # Texts full of braces, quotes and `1:` must not be taken for bare keys.
    assert decode_document(json.dumps(document).encode()) == document
    assert decode_document(encode_document(document)) == document


@pytest.mark.parametrize("text", ['a{1:2}"', '\\",3:"', "{0:1,2:3}", "\\\\"])
def test_bare_keys_within_strings_stay_as_they_are(text: str) -> None:
    document = {text: [text, {text: text}]}
    assert decode_document(json.dumps(document).encode()) == document


def test_integer_keys_are_written_quoted() -> None:
    assert json.loads(encode_document({"offsetTable": {2: 1}})) == {"offsetTable": {"2": 1}}


@pytest.mark.parametrize("damaged", [None, b"", b"\0" * 50, b'{"offsetTable":{"T@G":{0:', b"[]", b"\xff"])
def test_backup_is_used_if_the_file_is_missing_or_damaged(tmp_path: Path, damaged: bytes | None) -> None:
    if damaged is not None:
        (tmp_path / "consumerOffset.json").write_bytes(damaged)
    (tmp_path / "consumerOffset.json.bak").write_bytes(OFFSETS_OF_4_9_4)
    assert config_file(tmp_path).load()["offsetTable"]["T@G"] == {"0": 111, "1": 127}


def test_without_any_file_the_document_is_empty(tmp_path: Path) -> None:
    assert config_file(tmp_path).load() == {}
    (tmp_path / "consumerOffset.json").write_bytes(b"")
    assert config_file(tmp_path).load() == {}


def test_a_table_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(b"{")
    (tmp_path / "consumerOffset.json.bak").write_bytes(b"]")
    with pytest.raises(StoreError, match=r"consumerOffset\.json.*\.bak.*repair it, or delete it"):
        config_file(tmp_path).load()


def test_a_new_document_replaces_the_old_one_which_stays_as_backup(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    assert file.persist({"offsetTable": {"T@G": {0: 1}}})
    assert file.persist({"offsetTable": {"T@G": {0: 2}}})
    for name, offset in (("consumerOffset.json", 2), ("consumerOffset.json.bak", 1)):
        document = json.loads((tmp_path / name).read_bytes())
        assert check_seal(document) is True
        assert document == {"offsetTable": {"T@G": {"0": offset}}, SEAL_KEY: document[SEAL_KEY]}


def test_an_unchanged_document_is_not_written_again(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    file.persist({"offsetTable": {"T@G": {0: 1, 1: 2}}})
    (tmp_path / "consumerOffset.json").unlink()
    assert not file.persist({"offsetTable": {"T@G": {0: 1, 1: 2}}})
    assert not (tmp_path / "consumerOffset.json").exists()


def test_keys_of_another_version_are_preserved(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(
        '{"dataVersion":{"counter":3,"stateVersion":9,"timestamp":5},"splitTable":{"x":{0:1}},'
        '"topicConfigTable":{"T":{"attributes":{"message.type":"FIFO"},"perm":6},"Gone":{"perm":6}}}'
    )
    file = config_file(tmp_path, "topics.json")
    found = file.load()
    file.persist(
        {
            "dataVersion": {**found["dataVersion"], "counter": 4, "timestamp": 6},
            "topicConfigTable": {"T": {**found["topicConfigTable"]["T"], "perm": 4}},
        }
    )
    assert config_file(tmp_path, "topics.json").load() == {
        "dataVersion": {"counter": 4, "stateVersion": 9, "timestamp": 6},
        "splitTable": {"x": {"0": 1}},
        "topicConfigTable": {"T": {"attributes": {"message.type": "FIFO"}, "perm": 4}},
    }


# --- damage ---------------------------------------------------------------------------------------------------------------

OLD = {"table": {"A": {"n": 1}, "B": {"n": 2}}}
NEW = {"table": {"A": {"n": 1}, "B": {"n": 2}, "C": {"n": 3}}}


def written_twice(tmp_path: Path) -> tuple[Path, bytes]:
    file = config_file(tmp_path, "t.json")
    file.persist(OLD)
    file.persist(NEW)
    return tmp_path / "t.json", (tmp_path / "t.json").read_bytes()


def test_each_flipped_bit_is_corrected_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, good = written_twice(tmp_path)
    for bit in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        caplog.clear()
        assert config_file(tmp_path, "t.json").load() == NEW, bit
        valid = decode_or_none(bytes(damaged))
        assert str(path) in caplog.text or valid == NEW, bit


def decode_or_none(data: bytes) -> dict[str, object] | None:
    """Decode the document as a reader without support for checksums would; return None if it is invalid."""
    try:
        document = decode_document(data)
    except ValueError:
        return None
    return {key: value for key, value in document.items() if key in NEW}


@pytest.mark.parametrize("damage", ["cut", "emptied", "deleted", "zeros"])
def test_backup_in_use_is_logged_and_kept_when_a_new_file_is_written(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, good = written_twice(tmp_path)
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes({"cut": good[:-9], "emptied": b"", "zeros": b"\0" * len(good)}[damage])
    file = config_file(tmp_path, "t.json")
    assert file.load() == OLD and file.is_incomplete and not file.is_missing
    assert f"{path} cannot be read" in caplog.text and f"{path}.bak is used instead" in caplog.text
    backup = (tmp_path / "t.json.bak").read_bytes()
    file.persist({"table": {"D": {"n": 4}}})
    assert (tmp_path / "t.json.bak").read_bytes() == backup, "the damaged file does not take its place"
    assert config_file(tmp_path, "t.json").load() == {"table": {"D": {"n": 4}}}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_no_failing_call_leaves_a_damaged_table_without_its_backup(code: int) -> None:
    for method in ("rename", "create", "write_file", "replace_file", "sync", "link", "delete", "sync_dir", "make_dirs"):
        for nth in range(1, 4):
            disk = PowerCutDisk({"/c/t.json": b"{", "/c/t.json.bak": sealed(encode_document(OLD))})
            file = ConfigFile(disk, "/c/t.json")
            assert file.load() == OLD
            disk.faults.append(Fault(method, nth, OSError(code, "failing")))
            with contextlib.suppress(OSError):
                file.persist(NEW)
            for seed in range(10):
                found = ConfigFile(disk.power_cut(random.Random(seed)), "/c/t.json").load()
                assert found in (OLD, NEW), (method, nth, seed)


def test_a_power_cut_at_any_step_leaves_one_of_the_two_tables() -> None:
    for changes_left in range(12):
        for seed in range(20):
            disk = PowerCutDisk({"/c/t.json": b"{", "/c/t.json.bak": sealed(encode_document(OLD))})
            file = ConfigFile(disk, "/c/t.json")
            file.load()
            disk.changes_left = changes_left
            done = False
            with contextlib.suppress(Stopped):
                done = file.persist(NEW)
            found = ConfigFile(disk.power_cut(random.Random(seed)), "/c/t.json").load()
            assert found == NEW if done else found in (OLD, NEW)


def test_written_rows_equal_the_whole_encoded_document() -> None:
    disk = MemoryDisk()
    rows = RowsWriter(ConfigFile(disk, "/c/t.json"), "table", lambda row: row)
    table: dict[str, object] = {}
    for changes in ({"A": {"n": 1}, "é\n": [1, {"x": None}]}, {"B": {}, "A": {"n": 2}}, {"A": None, "B": None, "é\n": None}):
        table = {key: value for key, value in (table | changes).items() if value is not None}
        rows.write({"version": 1}, changes.items())
        assert disk.read_file("/c/t.json") == sealed(encode_document({"version": 1, "table": table}))


def test_a_changed_row_is_written_in_linear_time() -> None:
    def cpu_s(count: int) -> float:
        rows = RowsWriter(ConfigFile(MemoryDisk(), "/c/t.json"), "table", lambda row: row)
        rows.write({}, [(f"T{n}", {"n": n}) for n in range(count)])
        return linear.cpu_s(lambda: [rows.write({}, [("T0", {"n": -n})]) for n in range(20)])

    cpu_s(1000)
    assert cpu_s(40_000) < 12 * cpu_s(10_000)


@pytest.mark.parametrize("is_emptied", [True, False])
def test_table_written_once_is_restored_from_its_backup(
    tmp_path: Path, is_emptied: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config_file(tmp_path).persist({"cancelled": {"3": [7]}})
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(b"") if is_emptied else path.unlink()
    assert config_file(tmp_path).load() == {"cancelled": {"3": [7]}}
    assert str(path) in caplog.text


def test_empty_file_without_backup_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(b"")
    file = config_file(tmp_path)
    assert file.load() == {} and file.is_missing
    assert "consumerOffset.json is empty" in caplog.text
    caplog.clear()
    assert config_file(tmp_path, "topics.json").load() == {}
    assert not caplog.text, "the first start of a store"
