"""Count of the file descriptors that this process has open."""

import gc
import os
from contextlib import suppress
from pathlib import Path


def descriptors(folder: Path) -> int:
    """Return how many files of a folder this process has open; other files are ignored, because their number varies."""
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found += os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/")
    return found
