"""`repair` makes a store valid, shows its plan, and does nothing without agreement."""

import io
import shutil
from pathlib import Path

import pytest

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.store.format.layout import QUEUE_OFFSET_POSITION
from pocketmq.store_tools.check.repair import EXIT_REFUSED, Repair
from pocketmq.store_tools.files.selection import Damage, Selection, select
from pocketmq.store_tools.files.store_files import StoreFiles
from tests.store_tools.made_stores import GOLDEN_STORES, flip, made, overwrite, unpacked, verified


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return made(tmp_path / "store", 100)


def repaired(
    root: Path, *, queues: bool = True, index: bool = True, quarantine: bool = False, is_agreed: bool = True
) -> tuple[int, str]:
    out = io.StringIO()
    job = Repair(StoreFiles(str(root)), Printer(file=out, width=300))
    return job.run(queues=queues, index=index, quarantine=quarantine, is_agreed=is_agreed), out.getvalue()


@pytest.mark.parametrize("name", GOLDEN_STORES)
def test_repaired_apache_stores_are_valid(name: str, tmp_path: Path) -> None:
    root = unpacked(name, tmp_path)
    before = verified(root)
    exit_code, text = repaired(root)
    assert exit_code == 0, text
    assert verified(root).records == before.records


def test_all_derived_files_are_rebuilt(root: Path) -> None:
    before = verified(root)
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    exit_code, text = repaired(root)
    after = verified(root)
    assert exit_code == 0 and "deleted and rebuilt" in text
    assert (after.records, after.units, after.index_entries) == (before.records, before.units, before.index_entries)


def test_index_alone_is_rebuilt(root: Path) -> None:
    shutil.rmtree(root / "index")
    unit = root / "consumequeue" / "Topic1" / "1" / f"{0:020}"
    stamp = unit.read_bytes()
    exit_code, text = repaired(root, queues=False)
    assert exit_code == 0 and "the index is deleted and rebuilt" in text, text
    assert unit.read_bytes() == stamp


def test_damage_is_moved_aside_only_with_quarantine(root: Path) -> None:
    victim = list(select(StoreFiles(str(root)), Selection(topic="Topic1"), Damage()))[10]
    path, position = root / "commitlog" / f"{victim.physical_offset // 16384 * 16384:020}", victim.physical_offset % 16384
    damaged = b"\xaa" * victim.total_size
    overwrite(path, position, damaged)
    before = path.read_bytes()
    exit_code, text = repaired(root)
    assert exit_code == EXIT_REFUSED and "nothing is done" in text and "--quarantine" in text
    assert path.read_bytes() == before
    exit_code, text = repaired(root, quarantine=True)
    assert exit_code == 0, text
    assert any(saved.read_bytes() == damaged for saved in (root / "quarantine").iterdir())
    after = verified(root)
    # The filler counts as a record; the hole keeps the queue offsets of the other messages.
    assert (after.records, after.units, after.holes) == (120, 119, 1)


def test_wrong_queue_offset_in_a_record_is_corrected(root: Path) -> None:
    path = root / "commitlog" / f"{0:020}"
    before = path.read_bytes()
    flip(path, QUEUE_OFFSET_POSITION + 7)
    assert verified(root).exit_code == 1
    exit_code, text = repaired(root)
    assert exit_code == 0 and "the wrong queue offset in 1 records is corrected" in text, text
    assert path.read_bytes() == before


def test_nothing_is_done_without_agreement(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(root / "consumequeue" / "Topic1" / "1" / f"{0:020}", 3)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    exit_code, text = repaired(root, is_agreed=False)
    assert exit_code == EXIT_REFUSED and "use --yes" in text
    assert verified(root).exit_code == 2
