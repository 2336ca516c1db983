"""The options of `mqnamesrv` and `mqbroker`, declared with `click`. Not imported for a usual start (`server_arguments`)."""

from pathlib import Path
from typing import Final

import click

from pocketmq.runtime.command_line import commands
from pocketmq.runtime.command_line.option_types import Addresses, WholeNumber
from pocketmq.runtime.command_line.server_arguments import CONFIG_FILE, NAME_SERVERS, PORT

TEST_CLOCK_HELP: Final = "For tests: message time advances only by request, such as `pocketmq clock advance 30m`."
MEMORY_HELP: Final = "Keep the store in memory; it is lost when the program ends."


def server_command(program: str, description: str, *, is_broker: bool = False) -> commands.Command:
    """Declare the command line of a server; the parameters are fields of `server_arguments.Arguments`.

    `is_broker` adds the options --test-clock and --memory.
    """
    options: list[click.Parameter] = [
        click.Option(
            [*CONFIG_FILE, "config_file"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Config file, key=value lines.",
        ),
        click.Option(
            [*NAME_SERVERS, "namesrv_addr"],
            type=Addresses(may_be_empty=True),
            help="Name servers, such as '192.168.0.1:9876;192.168.0.2:9876' (key namesrvAddr, else $NAMESRV_ADDR).",
        ),
        click.Option(PORT, type=WholeNumber(0, 65535), help="Port to listen on, 0: any free one (key listenPort)."),
        click.Option(["-p", "--printConfigItem", "print_all"], is_flag=True, help="Print all config items and exit."),
        click.Option(
            ["-m", "--printImportantConfig", "print_important"],
            is_flag=True,
            help="Print the important config items and exit.",
        ),
        click.Option(
            ["--log-dir", "log_directory"],
            metavar="DIR",
            help="Folder of the log file, such as ~/logs/rocketmqlogs (key logDirectory).",
        ),
        click.Option(["--json-logs"], is_flag=True, help="Log one JSON object per line (key logFormat=json)."),
        click.Option(["--strict"], is_flag=True, help="Refuse to start with an unknown key in the config file."),
    ]
    if is_broker:
        options.append(click.Option(["--test-clock"], is_flag=True, help=TEST_CLOCK_HELP))
        options.append(click.Option(["--memory"], is_flag=True, help=MEMORY_HELP))
    examples = f"{program} -n 127.0.0.1:9876 -c broker.conf" if program == "mqbroker" else f"{program} -c namesrv.conf"
    notes = "Exit codes: 0 stopped by a signal; 1 could not start or stop; 2 wrong command line or config file."
    return commands.Command(program, help=description, params=options, examples=examples, notes=notes)
