"""Atomic replacement of small files."""

import os

import pytest

from pocketmq.runtime import atomic_file


def test_replace_keeps_the_previous_content_as_backup(tmp_path):
    path = tmp_path / "deep" / "f.json"
    atomic_file.replace(path, b"one")
    assert sorted(p.name for p in path.parent.iterdir()) == ["f.json"]
    atomic_file.replace(path, b"two")
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == {"f.json": b"two", "f.json.bak": b"one"}


def test_new_file_is_private_and_the_mode_of_an_existing_one_is_kept(tmp_path):
    path = tmp_path / "f"
    (tmp_path / "f.tmp").touch(0o644)  # left by a process that was killed
    atomic_file.replace(path, b"secret")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    atomic_file.replace(path, b"other")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_old_file_is_intact_when_the_rename_fails(tmp_path, monkeypatch):
    path = tmp_path / "f"
    atomic_file.replace(path, b"one")
    monkeypatch.setattr(type(path), "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        atomic_file.replace(path, b"two")
    assert path.read_bytes() == b"one"


def test_file_is_synced_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    path, steps = tmp_path / "f", []
    sync, rename = os.fsync, type(path).replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("sync"), sync(fd)))
    monkeypatch.setattr(type(path), "replace", lambda self, to: (steps.append("rename"), rename(self, to)))
    atomic_file.replace(path, b"one")
    assert steps == ["sync", "rename", "sync"]


def test_load_falls_back_to_the_backup(tmp_path):
    path = tmp_path / "f"
    assert atomic_file.load(path, int) is None
    path.with_name("f.bak").write_bytes(b"1")
    assert atomic_file.load(path, int) == 1
    path.write_bytes(b"2")
    assert atomic_file.load(path, int) == 2
    path.write_bytes(b"torn")
    assert atomic_file.load(path, int) == 1
    assert path.with_name("f.damaged").read_bytes() == b"torn"
    path.write_bytes(b"torn")
    path.with_name("f.bak").write_bytes(b"torn too")
    with pytest.raises(ValueError, match=f"{path} cannot be read"):
        atomic_file.load(path, int)
