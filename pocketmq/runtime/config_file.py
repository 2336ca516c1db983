"""Config files: a `.properties` file of a server, read strictly, and changed while the server runs.

Java accepts almost any text as properties. A file in another format would start a server without its settings, so it is
refused.
"""

import errno
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pocketmq.runtime import atomic_file, properties_file

FILE_SIZE_MAX: Final = 1 << 20
"""Maximum size in bytes of a config file."""
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_SHOWN_MAX: Final = 60
_WRITABLE: Final = 0o222
_changing = threading.Lock()  # two servers of one process may share a file


def read(path: Path) -> dict[str, str]:
    """Return the settings of a file. Raises OSError, or ValueError if it is no properties file."""
    return parse(_text(path))


def parse(text: str) -> dict[str, str]:
    """Return the settings of a config file's text. Raises ValueError with the line number if it is no properties file."""
    if found := _CONTROL.search(text):
        number = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {number}: not a properties file: it has the control character {found.group()!r}")
    settings: dict[str, str] = {}
    for number, key, has_separator, value in properties_file.entries(text):
        if _KEY.fullmatch(key) is None or not has_separator:
            raise ValueError(f"line {number}: not a properties file: expected key=value, found {key[:_SHOWN_MAX]!r}")
        settings[key] = value
    return settings


def change(path: Path, changes: Mapping[str, str]) -> None:
    """Set keys in the file at `path`, durably and all at once; its comments and order are kept. A missing file is created.

    Raises OSError if it cannot be written, and ValueError if it is no properties file. Then the file is unchanged.
    """
    path = path.resolve()  # a symbolic link is kept; its target is changed
    text = ""
    with _changing:
        if path.exists():
            if not path.stat().st_mode & _WRITABLE:
                raise PermissionError(errno.EACCES, "the file is read-only", str(path))
            text = _text(path)
            parse(text)
        atomic_file.replace(path, properties_file.edited(text, changes).encode())


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(FILE_SIZE_MAX + 1)
    if len(data) > FILE_SIZE_MAX:
        raise ValueError(f"more than {FILE_SIZE_MAX} bytes: not a properties file")
    return properties_file.decode(data)
