"""First steps of a process: choose the memory allocator, and end when the parent process ends, even if that is killed.

Run as a program, this module executes the command in its arguments so that the command ends with its parent.
"""

import os
import signal
import sys
from typing import Final

PARENT: Final = "POCKETMQ_PARENT"
"""Environment variable of a process that ends with the process that started it: that process's pid."""
_PR_SET_PDEATHSIG: Final = 1
_ALLOCATOR: Final = "PYTHONMALLOC"


def use_c_allocator() -> None:
    """Use the C library's allocator for small objects; return if PYTHONMALLOC is set already.

    The interpreter's allocator is faster, but it returns memory to the system in arenas of 1 MiB, each only when no block of
    it is in use: after a burst, a few blocks can keep most of its memory. The C library returns every free page
    (`freed_memory`). The interpreter reads the choice when it starts, so this process is replaced by the same program.
    """
    if sys.platform != "linux" or _ALLOCATOR in os.environ or not sys.executable:
        return
    os.environ[_ALLOCATOR] = "malloc"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def end_with_parent() -> None:
    """If the environment asks for it, let the kernel kill this process once the thread that started it has ended.

    The signal is SIGKILL, which also ends a process that hangs or is stopped.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is None or sys.platform != "linux":
        return
    import ctypes  # imported late: it slows the start

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it ended before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ignored by Python, and so by the command
    os.execvp(sys.argv[1], sys.argv[1:])
