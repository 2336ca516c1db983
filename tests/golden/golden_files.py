"""Unpacking of the stores in this folder, which Apache's brokers wrote."""

import os
import tarfile
from collections.abc import Container
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent
TIMER_FILES: Final = ("timerwheel", "timerlog")
"""Files of timer messages: 38 MB, mostly zeros."""


def unpack_golden(name: str, folder: Path, leave_out: Container[str] = ()) -> Path:
    """Unpack a store with its modification times, without files and folders in `leave_out`; return its root."""
    with tarfile.open(GOLDEN / name / "store.tar.gz") as archive:
        for member in archive:
            if not member.isfile() or any(part in leave_out for part in member.name.split("/")):
                continue
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            path.write_bytes(content.read())
            os.utime(path, (member.mtime, member.mtime))
    return folder / "store"
