"""The base of all commands: errors, help, version, completion, and sub-commands that are imported when used."""

import sys

import click
import pytest

from pocketmq import __version__
from pocketmq.runtime.command_line.commands import Command, CommandError, Group, Lazy, complain, run, warn
from pocketmq.runtime.command_line.option_types import ADDRESSES, OneOf, WholeNumber


@click.command(cls=Command, help="Greet somebody.", examples="tool greet Ann --times 2\n\ntool greet Bob")
@click.argument("name", help="who is greeted")
@click.option("--times", type=WholeNumber(1, 9), default=1, help="how often")
@click.option("--manner", type=OneOf(["kind", "curt"]), default="kind", help="how")
@click.option("-n", "--namesrv", type=ADDRESSES, envvar="NAMESRV_ADDR", default="127.0.0.1:9876", help="where")
def greet(name: str, times: int, manner: str, namesrv: str) -> int:
    if name == "nobody":
        raise CommandError("there is nobody\nnot even a dog")
    if name == "bug":
        raise KeyError("x")
    if name == "missing":
        open("/nowhere/file").close()
    warn("about to greet")
    complain("a hat is missing")
    print(f"{namesrv}: {' '.join([manner, name] * times)}")
    return 7


TOOL = Group("tool", {"greet": Lazy(f"{__name__}:greet", "greet somebody"), "leave": Lazy("no.such.module:leave", "leave")})


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            run(TOOL, "tool", arguments)
        return int(str(ended.value.code or 0)), *capsys.readouterr()

    return called


def test_result_is_the_exit_code_and_options_may_stand_anywhere(tool):
    expected = (7, "127.0.0.1:9876: curt Ann curt Ann\n", "tool: warning: about to greet\ntool: error: a hat is missing\n")
    assert tool("greet", "Ann", "--times", "2", "--manner", "curt") == expected
    assert tool("greet", "--times", "2", "Ann", "--manner=curt") == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["greet", "Ann", "--tims", "2"], "unknown option --tims; did you mean --times?"),
        (["gret"], "unknown command 'gret'; did you mean greet?"),
        (["xyz"], "unknown command 'xyz'"),
        (["--times", "2", "greet"], "unknown option --times: options come after the command, as in `tool greet ...`"),
        (["greet"], "NAME is missing"),
        (["greet", "Ann", "Bob"], "got unexpected extra argument (Bob)"),
        (["greet", "Ann", "--times"], "option --times needs a value"),
        (["greet", "Ann", "--times", "x"], "--times x: expected a whole number from 1 to 9"),
        (["greet", "Ann", "--times", "10"], "--times 10: expected a whole number from 1 to 9"),
        (["greet", "Ann", "--times", ""], "--times '': expected a whole number from 1 to 9"),
        (["greet", "Ann", "--manner", "kin"], "--manner kin: expected one of kind, curt; did you mean kind?"),
        (["greet", "Ann", "-n", "nohost"], "--namesrv nohost: expected HOST:PORT, several separated by ';', such as"),
        (["greet", "Ann", "-n", "host:70000"], "--namesrv host:70000: expected HOST:PORT"),
        ([], "no command is given"),
    ],
)
def test_wrong_command_line_names_what_is_wrong(tool, arguments, said):
    code, shown, complaints = tool(*arguments)
    assert (code, shown) == (2, "")
    assert f"tool: error: {said}" in complaints


def test_variable_with_a_wrong_value_is_named(tool, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b")
    code, _, complaints = tool("greet", "Ann")
    assert code == 2 and complaints.startswith("tool: error: NAMESRV_ADDR a:1;b: expected HOST:PORT")


def test_failures_are_shown_without_a_traceback(tool, monkeypatch):
    assert tool("greet", "nobody") == (1, "", "tool: error: there is nobody\ntool: error: not even a dog\n")
    assert tool("greet", "missing") == (1, "", "tool: error: /nowhere/file: No such file or directory\n")
    code, _, complaints = tool("greet", "bug")
    assert code == 1 and complaints.startswith("tool: error: internal error of tool: KeyError: 'x' (POCKETMQ_TRACEBACK=1")
    monkeypatch.setenv("POCKETMQ_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run(TOOL, "tool", ["greet", "bug"])


def test_help_shows_examples_as_they_are_and_imports_no_command(tool):
    code, shown, complaints = tool("--help")
    assert (code, complaints) == (0, "")
    assert "greet  greet somebody" in shown and "leave  leave" in shown
    for option in ("-h", "--help"):
        code, shown, _ = tool("greet", option)
        assert code == 0 and "Examples:\n  tool greet Ann --times 2\n\n  tool greet Bob\n" in shown
        assert all(word in shown for word in ("NAME", "who is greeted", "--times", "how often", "--version"))
    assert "no.such.module" not in sys.modules


@pytest.mark.parametrize("arguments", [["--version"], ["greet", "--version"]])
def test_version_of_program_and_command(tool, arguments):
    assert tool(*arguments) == (0, f"tool {__version__}\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(tool, monkeypatch, shell):
    monkeypatch.setenv("_TOOL_COMPLETE", f"{shell}_source")
    code, shown, _ = tool()
    assert code == 0 and f"_TOOL_COMPLETE={shell}_complete" in shown
    monkeypatch.setenv("_TOOL_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "tool greet Ann --ti")
    monkeypatch.setenv("COMP_CWORD", "--ti" if shell == "fish" else "3")
    assert "--times" in tool()[1]
