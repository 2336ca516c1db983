"""Command line shared by `mqnamesrv` and `mqbroker`, with Apache's options.

arguments = parse("mqnamesrv", "RocketMQ name server", argv)
(config,) = configure("mqnamesrv", arguments, [NamesrvConfig], IGNORED_KEYS)       may end the process: -p, -m, errors
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from pocketmq.runtime import properties_file
from pocketmq.runtime.config import ConfigError, bind, print_items

TEST_CLOCK_HELP: Final = "for tests: message time stands still until `pocketmq clock advance 30m`"


@dataclass
class Arguments:
    """Parsed command line."""

    config_file: Path | None
    namesrv_addr: str | None
    port: int | None
    print_all: bool
    print_important: bool
    test_clock: bool = False


def parse(program: str, description: str, argv: Sequence[str] | None = None, *, with_test_clock: bool = False) -> Arguments:
    """Parse `argv` (default: the process's). Exits with code 2 on errors, with 0 after `-h`.

    `with_test_clock` adds the option --test-clock.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("-c", "--configFile", metavar="FILE", type=Path, help="config file, key=value lines")
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="ADDRESS", help="name servers, eg: '192.168.0.1:9876;192.168.0.2:9876'"
    )
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on, 0: any free one (key listenPort)")
    parser.add_argument("-p", "--printConfigItem", action="store_true", help="print all config items and exit")
    parser.add_argument(
        "-m", "--printImportantConfig", action="store_true", help="print the important config items and exit"
    )
    if with_test_clock:
        parser.add_argument("--test-clock", action="store_true", help=TEST_CLOCK_HELP)
    found = parser.parse_args(argv)
    return Arguments(
        found.configFile,
        found.namesrvAddr,
        found.port,
        found.printConfigItem,
        found.printImportantConfig,
        with_test_clock and found.test_clock,
    )


def configure(
    program: str, arguments: Arguments, declared: Sequence[type], ignored: Mapping[str, str] | None = None
) -> list[Any]:
    """Return instances of the classes `declared`, set from the config file; command line options override the file.

    Writes ignored keys to standard error. Exits with code 0 after `-p` and `-m`, and with 2, naming the file or key, when
    the file cannot be read or a value is invalid.
    """
    try:
        properties = {} if arguments.config_file is None else properties_file.load(arguments.config_file)
    except (OSError, ValueError) as error:
        _end(program, [f"config file {arguments.config_file}: {getattr(error, 'strerror', None) or error}"])
    if arguments.namesrv_addr is not None:
        properties["namesrvAddr"] = arguments.namesrv_addr
    if arguments.port is not None:
        properties["listenPort"] = str(arguments.port)
    try:
        configs, report = bind(list(declared), properties, ignored)
    except ConfigError as error:
        _end(program, error.problems)
    for line in report.lines():
        print(f"{program}: {line}", file=sys.stderr)
    if arguments.print_all or arguments.print_important:
        print(print_items(configs, important=arguments.print_important and not arguments.print_all), end="")
        sys.exit(0)
    return configs


def _end(program: str, problems: Sequence[str]) -> NoReturn:
    for problem in problems:
        print(f"{program}: {problem}", file=sys.stderr)
    sys.exit(2)
