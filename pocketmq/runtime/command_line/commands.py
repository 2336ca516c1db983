"""Base of all our commands, on `click`: one style of errors, help and `--version`; sub-commands are imported when used.

    @click.command(cls=Command, examples="pocketmq produce TopicTest hello --tag a")
    @click.argument("topic", help="the topic, which is created if need be")
    @click.option("--tag", help="the messages' tag")
    def produce(topic: str, tag: str | None) -> int: ...                              the exit code, or None for 0

    tool = Group("pocketmq", {"produce": Lazy("pocketmq.cli.produce:produce", "send messages")}, help="...", examples="...")

    def main(argv: Sequence[str] | None = None) -> NoReturn:
        run(tool, "pocketmq", argv)

A command fails by raising an exception, shown as one line per problem on standard error, `pocketmq: error: ...`:
`click.UsageError` and `click.BadParameter` for a wrong command line (exit code 2), `CommandError` for all else (1).
`option_types` has types of options whose errors are in the same style. `-h`, `--help` and `--version` are added to
each command. POCKETMQ_TRACEBACK=1 shows the traceback of an unexpected error.
"""

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import click

from pocketmq import __version__
from pocketmq.runtime import config
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.log import LineFormatter
from pocketmq.runtime.peer_text import printable

USAGE_ERROR: Final = 2
FAILURE: Final = 1
INTERRUPTED: Final = 130
_TRACEBACK: Final = "POCKETMQ_TRACEBACK"
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": False}


class CommandError(click.ClickException):
    """A failure that is shown as `PROGRAM: error: TEXT`, one line for each line of the text."""

    def __init__(self, text: str, exit_code: int = FAILURE) -> None:
        super().__init__(text)
        self.code = exit_code


class Command(click.Command):
    """A command with `--version` and, at the end of its help, examples: lines that are shown as they are.

    `notes`: paragraphs after the examples. `usage_exit_code` replaces 2 for a wrong command line, also in sub-commands.
    """

    def __init__(
        self, *arguments: Any, examples: str = "", notes: str = "", usage_exit_code: int = USAGE_ERROR, **named: Any
    ) -> None:
        named["context_settings"] = {**_SETTINGS, **(named.get("context_settings") or {})}
        super().__init__(*arguments, **named)
        self.examples = examples
        self.notes = notes
        self.usage_exit_code = usage_exit_code

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        if any(param.name == "version" for param in params):
            return params
        return [*params, _VERSION_OPTION]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _errors_of(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _errors_of(ctx):
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip("\n").splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n" if line else "\n")
        if self.notes:
            formatter.write_paragraph()
            formatter.write_text(self.notes.strip("\n"))


@contextlib.contextmanager
def _errors_of(ctx: click.Context) -> Iterator[None]:
    """Set the command of usage errors that have none."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise


class Lazy(NamedTuple):
    """A sub-command: its place, as `module:name`, and its line in the help of its group."""

    place: str
    about: str

    def load(self) -> click.Command:
        module, _, name = self.place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), self.place
        return command


class Group(Command, click.Group):
    """A command with sub-commands, each of which is imported when it is used, or when its own help is shown."""

    def __init__(self, name: str, rows: Mapping[str, Lazy], **named: Any) -> None:
        super().__init__(name=name, subcommand_metavar="COMMAND ...", **named)
        self.rows = dict(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self.rows.get(cmd_name)
        return None if row is None else row.load()

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        command = self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing:
            raise click.UsageError(f"unknown command {args[0]!r}{nearest(args[0], self.rows)}", ctx)
        return args[0], command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.about) for name, row in self.rows.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=row.about) for name, row in self.rows.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the nearest of the known words, regardless of case; nothing if none is near."""
    near = config.nearest(word, known)
    return f"; did you mean {near}?" if near else ""


def parse(command: click.Command, program: str, argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the values of a command's parameters. Ends the process after an error, and after help and version."""
    _complete(command, program)
    try:
        return command.make_context(program, list(sys.argv[1:] if argv is None else argv)).params
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        sys.exit(_report(program, error))


def run(command: click.Command, program: str, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code. `program`: its name in errors and in the help."""
    sys.exit(call(command, program, argv))


def call(command: click.Command, program: str, argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; otherwise as `run`. What it logs is shown as its warnings."""
    _complete(command, program)
    logged = logging.StreamHandler()
    logged.setFormatter(LineFormatter(f"{program}: warning: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[logged])
    try:
        with command.make_context(program, list(sys.argv[1:] if argv is None else argv)) as context:
            exit_code = command.invoke(context) or 0
            sys.stdout.flush()
            return int(exit_code)
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        return _report(program, error)


def _complete(command: click.Command, program: str) -> None:
    """If a shell asks for completion, answer it and end the process."""
    variable = f"_{program.upper().replace(' ', '_')}_COMPLETE"
    if instruction := os.environ.get(variable):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(command, {}, program, variable, instruction))


def say(text: object = "", *, end: str = "\n", to_errors: bool = False) -> None:
    """Print a text for people, or JSON: on standard output, or beside it. All commands print by this, or by a `Printer`."""
    print(printable(str(text)), end=end, file=sys.stderr if to_errors else sys.stdout, flush=True)


def complain(text: str) -> None:
    """Show an error after which the running command continues, in the style of all errors."""
    _show(click.get_current_context().find_root().info_name or "", "error", text)


def warn(text: str) -> None:
    """Show a warning of the running command on standard error."""
    _show(click.get_current_context().find_root().info_name or "", "warning", text)


def _report(program: str, error: Exception) -> int:
    """Show an error and return its exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.message, to_errors=True)
        _show(program, "error", "no command is given: one of those above is needed")
        return _usage_exit_code(error.ctx)
    if isinstance(error, click.UsageError):
        _show(program, "error", usage_text(error))
        if error.ctx is not None:
            say(f"Try '{error.ctx.command_path} --help'.", to_errors=True)
        return _usage_exit_code(error.ctx)
    if isinstance(error, click.ClickException):
        _show(program, "error", error.message)
        return error.code if isinstance(error, CommandError) else FAILURE
    if isinstance(error, OSError):
        _show(program, "error", reason(error))
        return FAILURE
    kind = type(error).__name__
    _show(program, "error", f"internal error of {program}: {kind}: {error} ({_TRACEBACK}=1 shows the traceback)")
    return FAILURE


def _show(program: str, kind: str, text: str) -> None:
    for line in text.splitlines() or [text]:
        say(f"{program}: {kind}: {line}", to_errors=True)


def usage_text(error: click.UsageError) -> str:
    """Return the text of a usage error, in the style of our errors instead of click's."""
    context = error.ctx
    if isinstance(error, click.NoSuchOption):
        return f"unknown option {error.option_name}{_where(error.option_name, context)}"
    if isinstance(error, click.MissingParameter):
        kind = "option " if isinstance(error.param, click.Option) else ""
        return f"{kind}{_name(error)} is missing" + (f": {error.message}" if error.message else "")
    if isinstance(error, click.BadParameter):
        value = getattr(error, "value", None)
        return f"{_name(error)}{'' if value is None else ' ' + shown(value)}: {error.message}"
    if isinstance(error, click.BadOptionUsage) and "requires an argument" in error.message:
        return f"option {error.option_name} needs a value"
    text = error.message.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text  # click's own texts begin with a capital


def _where(option: str, context: click.Context | None) -> str:
    if context is None:
        return ""
    known = [name for param in context.command.get_params(context) for name in (*param.opts, *param.secondary_opts)]
    near = nearest(option, [name for name in known if name.startswith("-")])
    if not near and isinstance(context.command, Group):
        return f": options come after the command, as in `{context.command_path} {next(iter(context.command.rows))} ...`"
    return near


def _name(error: click.BadParameter) -> str:
    """Return the option as written on the command line, the environment variable used instead, or the argument's name."""
    param, context = error.param, error.ctx
    if param is None:
        return str(error.param_hint or "argument")
    if isinstance(param, click.Argument):
        return param.make_metavar(context).strip("[].") if context is not None else str(param.name).upper()
    if context is not None and param.envvar and _is_from_environment(context, param):
        return str(param.envvar if isinstance(param.envvar, str) else param.envvar[0])
    return max(param.opts, key=len)


def _is_from_environment(context: click.Context, param: click.Parameter) -> bool:
    return context.get_parameter_source(str(param.name)) is click.core.ParameterSource.ENVIRONMENT


def shown(value: object) -> str:
    """Return a value for an error text: unchanged, or in quotes if it is empty or contains blanks."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)


def _usage_exit_code(context: click.Context | None) -> int:
    while context is not None:
        code = getattr(context.command, "usage_exit_code", USAGE_ERROR)
        if code != USAGE_ERROR:
            return int(code)
        context = context.parent
    return USAGE_ERROR


def _show_version(context: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        say(f"{context.find_root().info_name} {__version__}")
        context.exit()


_VERSION_OPTION: Final = click.Option(
    ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show the version and exit."
)
