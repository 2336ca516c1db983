"""Texts of exceptions for people to read: never empty, and without Python's formatting, such as `[Errno 2]`."""

import os
import socket


def reason(error: BaseException) -> str:
    """Return the text of an exception: for a failed system call its file and the system's message; never empty."""
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved: {error.strerror}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    if isinstance(error, OSError) and error.strerror:
        return file_reason(error) if error.filename is not None else system_reason(error)
    return str(error) or _in_words(error)


def file_reason(error: OSError) -> str:
    """Return `FILE: TEXT` for a system error about a file."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else error.filename
    return f"{name}: {system_reason(error)}"


def system_reason(error: OSError) -> str:
    """Return the system's message alone; asyncio embeds it in a longer text."""
    if not isinstance(error, socket.gaierror) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or _in_words(error)


def reason_of(address: str, error: BaseException) -> str:
    """Return `ADDRESS: TEXT`, or the text alone if it contains the address."""
    text = reason(error)
    return text if address in text else f"{address}: {text}"


def _in_words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return "the connection was closed" if isinstance(error, ConnectionError) else type(error).__name__
