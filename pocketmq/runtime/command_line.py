"""Command line shared by `mqnamesrv` and `mqbroker`, with Apache's options.

arguments = parse("mqnamesrv", "RocketMQ name server", argv)
(config,) = configure("mqnamesrv", arguments, [NamesrvConfig], IGNORED_KEYS)       may end the process: -p, -m, errors
"""

import contextlib
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from pocketmq.runtime import commands, config_file
from pocketmq.runtime.config import ConfigError, bind, print_items
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.log_config import LogConfig, LogFormat
from pocketmq.runtime.option_types import Addresses, WholeNumber

TEST_CLOCK_HELP: Final = "For tests: message time stands still until `pocketmq clock advance 30m`."


@dataclass
class Arguments:
    """Parsed command line."""

    config_file: Path | None
    namesrv_addr: str | None
    port: int | None
    print_all: bool
    print_important: bool
    test_clock: bool = False
    strict: bool = False
    log_directory: str | None = None
    json_logs: bool = False


def server_command(program: str, description: str, *, with_test_clock: bool = False) -> commands.Command:
    """Declare the command line of a server. `with_test_clock` adds the option --test-clock."""
    options: list[click.Parameter] = [
        click.Option(
            ["-c", "--configFile"], type=click.Path(path_type=Path), metavar="FILE", help="Config file, key=value lines."
        ),
        click.Option(
            ["-n", "--namesrvAddr"],
            type=Addresses(may_be_empty=True),
            help="Name servers, such as '192.168.0.1:9876;192.168.0.2:9876' (key namesrvAddr, else $NAMESRV_ADDR).",
        ),
        click.Option(["--port"], type=WholeNumber(0, 65535), help="Port to listen on, 0: any free one (key listenPort)."),
        click.Option(["-p", "--printConfigItem"], is_flag=True, help="Print all config items and exit."),
        click.Option(["-m", "--printImportantConfig"], is_flag=True, help="Print the important config items and exit."),
        click.Option(
            ["--log-dir"], metavar="DIR", help="Folder of the log file, such as ~/logs/rocketmqlogs (key logDirectory)."
        ),
        click.Option(["--json-logs"], is_flag=True, help="Log one JSON object per line (key logFormat=json)."),
        click.Option(["--strict"], is_flag=True, help="Refuse to start with an unknown key in the config file."),
    ]
    if with_test_clock:
        options.append(click.Option(["--test-clock"], is_flag=True, help=TEST_CLOCK_HELP))
    examples = f"{program} -n 127.0.0.1:9876 -c broker.conf" if program == "mqbroker" else f"{program} -c namesrv.conf"
    notes = "Exit codes: 0 stopped by a signal; 1 could not start or stop; 2 wrong command line or config file."
    return commands.Command(program, help=description, params=options, examples=examples, notes=notes)


def parse(program: str, description: str, argv: Sequence[str] | None = None, *, with_test_clock: bool = False) -> Arguments:
    """Parse `argv` (default: the process's). Exits with code 2 on errors, with 0 after `-h`; else as `server_command`."""
    found = commands.parse(server_command(program, description, with_test_clock=with_test_clock), program, argv)
    return Arguments(
        found["configfile"],
        found["namesrvaddr"],
        found["port"],
        found["printconfigitem"],
        found["printimportantconfig"],
        found.get("test_clock", False),
        found["strict"],
        found["log_dir"],
        found["json_logs"],
    )


def configure(
    program: str,
    arguments: Arguments,
    declared: Sequence[type],
    ignored: Mapping[str, str] | None = None,
    kept_file: Path | None = None,
) -> list[Any]:
    """Return instances of the classes `declared`, set from the config file; command line options override the file.

    `kept_file`: read in place of a config file, if there is one: settings that a server without `-c` was given while it
    ran. Writes ignored keys to standard error. Exits with code 0 after `-p` and `-m`, and with 2, naming the file or key,
    when the file cannot be read or a value is invalid; with `--strict` also when a key is unknown.
    """
    path, option = arguments.config_file, "-c "
    if path is None and kept_file is not None and kept_file.exists():
        path, option = kept_file, ""
        print(f"{program}: warning: settings of {path}, changed while it ran, apply as there is no -c", file=sys.stderr)
    elif kept_file is not None and kept_file.exists():
        print(f"{program}: warning: settings of {kept_file}, changed while it ran without -c, do not apply", file=sys.stderr)
    try:
        properties = {} if path is None else config_file.read(path)
    except OSError as error:
        _end(program, [f"{option}{reason(error)}"])
    except ValueError as error:
        _end(program, [f"{option}{path}: {error}"])
    if arguments.namesrv_addr is not None:
        properties["namesrvAddr"] = arguments.namesrv_addr
    if arguments.port is not None:
        properties["listenPort"] = str(arguments.port)
    if arguments.log_directory is not None:
        properties["logDirectory"] = arguments.log_directory
    if arguments.json_logs:
        properties["logFormat"] = LogFormat.JSON.value
    try:
        configs, report = bind(list(declared), properties, ignored)
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
    from pocketmq.runtime import log

    try:
        log.setup_as(config, file_name)
    except OSError as error:
        _end(program, [f"logDirectory={config.log_directory}: {reason(error)}"])


@contextlib.contextmanager
def many_imports() -> Iterator[None]:
    """Pause garbage collection while modules are imported, and exempt what they created: it is never garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def _end(program: str, problems: Sequence[str]) -> NoReturn:
    for problem in problems:
        print(f"{program}: error: {problem}", file=sys.stderr)
    sys.exit(2)
