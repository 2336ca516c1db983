import struct
from pathlib import Path

import pytest

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint


def test_times_survive_a_reopening(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    checkpoint = StoreCheckpoint(FileDisk(), path)
    assert checkpoint.min_timestamp_ms == 0
    checkpoint.physic_msg_timestamp_ms = 1_700_000_010_000
    checkpoint.logics_msg_timestamp_ms = 1_700_000_005_000
    checkpoint.index_msg_timestamp_ms = 1_700_000_000_000
    checkpoint.close()

    data = Path(path).read_bytes()
    assert len(data) == 4096
    assert struct.unpack_from(">qqq", data) == (1_700_000_010_000, 1_700_000_005_000, 1_700_000_000_000)

    checkpoint = StoreCheckpoint(FileDisk(), path)
    assert checkpoint.min_timestamp_ms == 1_700_000_002_000
    assert checkpoint.min_timestamp_with_index_ms == 1_700_000_000_000
    checkpoint.close()


def test_fields_of_5x_are_preserved(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(struct.pack(">qqqqq", 1, 2, 3, 4_000_000_000, 5_000_000_000).ljust(4096, b"\0"))
    checkpoint = StoreCheckpoint(FileDisk(), str(path))
    checkpoint.physic_msg_timestamp_ms = 10
    checkpoint.close()
    assert struct.unpack_from(">qqqqq", path.read_bytes()) == (10, 2, 3, 4_000_000_000, 5_000_000_000)


@pytest.mark.parametrize("size", [0, 40, 8192])
def test_file_of_another_size_is_replaced_by_an_empty_checkpoint(tmp_path: Path, size: int) -> None:
    (tmp_path / "checkpoint").write_bytes(b"\x01" * size)
    checkpoint = StoreCheckpoint(FileDisk(), str(tmp_path / "checkpoint"))
    assert (checkpoint.min_timestamp_ms, checkpoint.min_timestamp_with_index_ms) == (0, 0)
    checkpoint.close()
    assert (tmp_path / "checkpoint").read_bytes()[:256] == bytes(256)


def test_setting_back_and_moving_on_are_durable_at_once(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = StoreCheckpoint(FileDisk(), str(path))
    checkpoint.move_on(5000, physic_ms=6000)
    assert struct.unpack_from(">qqq", path.read_bytes()) == (6000, 5000, 5000)
    checkpoint.set_back(4000)
    assert struct.unpack_from(">qqq", path.read_bytes()) == (6000, 4000, 4000)
    checkpoint.set_back(4500)
    assert struct.unpack_from(">qqq", path.read_bytes()) == (6000, 4000, 4000)
