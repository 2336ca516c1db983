"""What an exception says, as a person reads it: never empty, and without Python's decoration."""

import errno
import os
import socket

_TIMED_OUT = "no answer in time"


def reason(error: BaseException) -> str:
    """Return the text of an exception: of a system call its file and the system's words, of a time-out that it is one."""
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return "connection refused: nothing listens there"
    if isinstance(error, OSError) and error.strerror and error.filename is None:
        # asyncio embeds the system's text in its own.
        return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        return f"{os.fsdecode(name) if isinstance(name, (str, bytes)) else name}: {error.strerror}"
    return str(error) or (_TIMED_OUT if isinstance(error, TimeoutError) else type(error).__name__)
