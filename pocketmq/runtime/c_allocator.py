"""Use of the C library's allocator for small objects, instead of the interpreter's own.

The interpreter's allocator is faster, but it returns memory to the system in arenas of 1 MiB, each only when no block of it
is in use: after a burst, a few blocks can keep most of its memory. The C library returns every free page (`freed_memory`).

The interpreter reads the choice from an environment variable when it starts, so the program is started again with it.
"""

import os
import sys
from typing import Final

_CHOICE: Final = "PYTHONMALLOC"


def use_c_allocator() -> None:
    """Replace this process by the same program with the C library's allocator; return if PYTHONMALLOC is set already."""
    if sys.platform != "linux" or _CHOICE in os.environ or not sys.executable:
        return
    os.environ[_CHOICE] = "malloc"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
