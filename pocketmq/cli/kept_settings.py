"""The config file of a server that another process starts: written at each start, without losing changed settings.

The server changes its settings in this file (`updateBrokerConfig`). Comments record the settings written at the start, to
recognise a change as a difference from them, and earlier changes, including those that a given setting replaces.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.runtime import atomic_file, config_file, properties_file

_HEAD: Final = "# Written at each start, from the options of the program that starts the server.\n"
_GIVEN: Final = "# given at the start: "
_CHANGED: Final = "# changed while the server ran: "


@dataclass(frozen=True)
class Kept:
    """Settings that were changed while a server ran: those that apply at this start, and those replaced by given ones."""

    applied: Mapping[str, str]
    replaced: Mapping[str, str]


NOTHING_KEPT: Final = Kept({}, {})


def write(path: Path, defaults: Mapping[str, str], given: Mapping[str, str]) -> Kept:
    """Write the config file of a server. Changes made while it ran replace `defaults`, and `given` replaces both.

    Raises OSError, or ValueError if there is a file that is no properties file.
    """
    changed = _changed(path)
    settings = {**defaults, **changed, **given}
    lines = [_HEAD, *_lines(_CHANGED, changed), *_lines(_GIVEN, settings), properties_file.dumps(settings)]
    atomic_file.replace(path, "".join(lines).encode())
    applied = {key: value for key, value in changed.items() if settings[key] == value}
    return Kept(applied, {key: value for key, value in changed.items() if key not in applied})


def _lines(mark: str, settings: Mapping[str, str]) -> list[str]:
    return [mark + properties_file.dumps({key: value}) for key, value in settings.items()]


def _changed(path: Path) -> dict[str, str]:
    """Return the settings changed since the file was last written, and those changed earlier."""
    if not path.exists():
        return {}
    text = properties_file.decode(path.read_bytes())
    if not text.startswith(_HEAD):
        return {}  # not written here
    given, earlier = _marked(_GIVEN, text), _marked(_CHANGED, text)
    return {**earlier, **{key: value for key, value in config_file.parse(text).items() if given.get(key) != value}}


def _marked(mark: str, text: str) -> dict[str, str]:
    lines = (line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark))
    return properties_file.loads("\n".join(lines))
