"""Command line shared by `mqnamesrv` and `mqbroker`, with Apache's options.

arguments = parse("mqnamesrv", "RocketMQ name server", argv)
(config,) = configure("mqnamesrv", arguments, [NamesrvConfig], IGNORED_KEYS)       may end the process: -p, -m, errors
"""

import contextlib
import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from pocketmq.runtime import config_file, log
from pocketmq.runtime.config import ConfigError, bind, print_items
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.log import LogConfig, LogFormat

CONFIG_FILE: Final = ("-c", "--configFile")
NAME_SERVERS: Final = ("-n", "--namesrvAddr")
PORT: Final = ("--port",)
_PORT: Final = re.compile("[0-5]?[0-9]{1,4}", re.ASCII)
_LEFT_OUT: Final = ("pdb", "numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
"""Modules that libraries import for interactive use: a debugger (for construct.debug), and the docstrings of numpy's
compiled functions. Without them a broker needs 0.7 MB less."""
_ADDRESSES: Final = re.compile(r"[\w.-]+:[0-5]?[0-9]{1,4}(;[\w.-]+:[0-5]?[0-9]{1,4})*", re.ASCII)


@dataclass
class Arguments:
    """Parsed command line."""

    config_file: Path | None = None
    namesrv_addr: str | None = None
    port: int | None = None
    print_all: bool = False
    print_important: bool = False
    test_clock: bool = False
    memory: bool = False
    strict: bool = False
    log_directory: str | None = None
    json_logs: bool = False


def parse(program: str, description: str, argv: Sequence[str] | None = None, *, is_broker: bool = False) -> Arguments:
    """Parse `argv` (default: the process's). Ends the process after an error, and after help and version.

    `server_command` declares all options. It is not used for a usual start, because its imports would stay in memory.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    usual = None if f"_{program.upper()}_COMPLETE" in os.environ else _usual(words)
    if usual is not None:
        return usual
    from pocketmq.runtime.command_line import commands
    from pocketmq.runtime.command_line.server_command import server_command

    command = server_command(program, description, is_broker=is_broker)
    return Arguments(**commands.parse(command, program, words))


def _usual(words: Sequence[str]) -> Arguments | None:
    """Return the arguments if there are only -c, -n and --port, with values of the usual form; else None."""
    arguments = Arguments()
    for option, value in zip_longest(words[::2], words[1::2], fillvalue=""):
        if option in CONFIG_FILE and value[:1] not in ("", "-"):
            arguments.config_file = Path(value)
        elif option in NAME_SERVERS and _ADDRESSES.fullmatch(value):
            arguments.namesrv_addr = value
        elif option in PORT and _PORT.fullmatch(value):
            arguments.port = int(value)
        else:
            return None
    return arguments


def configure(
    program: str,
    arguments: Arguments,
    declared: Sequence[type],
    ignored: Mapping[str, str] | None = None,
    kept_file: Path | None = None,
) -> list[Any]:
    """Return instances of the classes `declared`, set from the config file; command line options override the file.

    `kept_file`: file of settings changed while a server without `-c` ran; if it exists, it is read in place of a config
    file. Writes ignored keys to standard error. Exits with code 0 after `-p` and `-m`, and with 2, naming the file or key,
    when the file cannot be read or a value is invalid; with `--strict` also when a key is unknown.
    """
    path, option = arguments.config_file, "-c "
    if kept_file is not None and kept_file.exists():
        effect = "apply, as -c is not given" if path is None else "do not apply, as -c is given"
        print(f"{program}: warning: settings changed at runtime (in {kept_file}) {effect}", file=sys.stderr)
        if path is None:
            path, option = kept_file, ""
    try:
        properties = {} if path is None else config_file.read(path)
    except OSError as error:
        _end(program, [f"{option}{reason(error)}"])
    except ValueError as error:
        _end(program, [f"{option}{path}: {error}"])
    given = {
        "namesrvAddr": arguments.namesrv_addr,
        "listenPort": arguments.port,
        "logDirectory": arguments.log_directory,
        "logFormat": LogFormat.JSON.value if arguments.json_logs else None,
    }
    properties |= {key: str(value) for key, value in given.items() if value is not None}
    try:
        configs, report = bind(declared, properties, ignored)
    except ConfigError as error:
        _end(program, error.problems)
    if arguments.strict and report.unknown:
        _end(program, report.unknown_lines(": refused by --strict"))
    for line in report.lines():
        print(f"{program}: warning: {line}", file=sys.stderr)
    if arguments.print_all or arguments.print_important:
        print(print_items(configs, important=arguments.print_important and not arguments.print_all), end="")
        sys.exit(0)
    return configs


def set_up_logs(program: str, config: LogConfig, file_name: str) -> None:
    """Begin to log as configured. Exits with code 2 if the log file cannot be opened."""
    try:
        log.setup_as(config, file_name)
    except OSError as error:
        _end(program, [f"logDirectory={config.log_directory}: {reason(error)}"])


@contextlib.contextmanager
def many_imports() -> Iterator[None]:
    """Save time and memory while the modules of a server are imported.

    Garbage collection is paused, and later skips the objects that the modules created, because they are permanent. The
    modules `_LEFT_OUT` are replaced by empty ones meanwhile. numpy's library for matrices, which servers do not use, starts
    no threads, which would spin at first.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    was_enabled = gc.isenabled()
    gc.disable()
    empty = {name: ModuleType(name) for name in _LEFT_OUT if name not in sys.modules}
    sys.modules.update(empty)
    try:
        yield
        gc.freeze()
    finally:
        for name in empty:
            sys.modules.pop(name, None)
        if was_enabled:
            gc.enable()


def _end(program: str, problems: Sequence[str]) -> NoReturn:
    for problem in problems:
        print(f"{program}: error: {problem}", file=sys.stderr)
    sys.exit(2)
