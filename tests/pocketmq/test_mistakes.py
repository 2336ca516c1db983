"""Mistakes at the command line (what is printed, and the exit code), and the help of every command."""

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from pocketmq import __version__
from pocketmq.admin.tool import main as mqadmin
from pocketmq.broker.__main__ import main as mqbroker
from pocketmq.cli.main import main as pocketmq
from pocketmq.cli.processes import Server, start_up
from pocketmq.cli.shutdown import main as mqshutdown
from pocketmq.namesrv.__main__ import main as mqnamesrv
from pocketmq.proxy.__main__ import main as mqproxy
from pocketmq.runtime.command_line.commands import Command, Group
from tests.pocketmq import commands_page

MAINS: dict[str, Callable[..., None]] = {
    "pocketmq": pocketmq,
    "mqbroker": mqbroker,
    "mqnamesrv": mqnamesrv,
    "mqproxy": mqproxy,
    "mqshutdown": mqshutdown,
    "mqadmin": mqadmin,
}
COMMANDS = dict(commands_page.every_command())
OURS = {name: command for name, command in COMMANDS.items() if isinstance(command, Command)}


class Place(NamedTuple):
    """Servers and a folder with files, to which the command lines below refer."""

    folder: Path
    namesrv: str
    broker: str
    dead: str
    """An address at which nothing listens."""
    taken: int
    """A port at which something else listens."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "file").write_text("text\n")
    (folder / "settings.json").write_text('{"listenPort": 10911}\n')
    (folder / "escape.conf").write_text("brokerName=\\u12\n")
    (folder / "range.conf").write_text("mappedFileSizeCommitLog=100\nlistenPort=nine\n")
    (folder / "binary.conf").write_bytes(b"PK\x03\x04 \x00\x01")
    (folder / "plain").mkdir()
    (folder / "tools.yml").write_text("accessKey: me\n")
    (folder / "start.conf").write_text(f"storePathRootDir={folder}/file\nmappedFileSizeCommitLog=1048576\n")
    server = start_up(folder / "up", "--store", str(folder / "store"), "--set", "mappedFileSizeCommitLog=1048576")
    try:
        broker = re.search(r"The broker.* address=(\S+)", server.out.read_text())
        assert broker is not None
        with socket.socket() as bound, socket.create_server(("127.0.0.1", 0)) as taken:
            bound.bind(("127.0.0.1", 0))  # without listening, so connections are refused
            dead = f"127.0.0.1:{bound.getsockname()[1]}"
            yield Place(folder, server.address, broker[1], dead, taken.getsockname()[1])
    finally:
        _stop(server)


def _stop(server: Server) -> None:
    assert server.stop() == 0, server.out.read_text()


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Place
) -> Callable[..., tuple[int, str, str]]:
    """`run("pocketmq produce T")` -> exit code, standard output, standard error."""
    for variable in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "POCKETMQ_TRACEBACK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("POCKETMQ_RUN", str(place.folder / "run"))
    monkeypatch.chdir(place.folder)

    def called(line: str) -> tuple[int, str, str]:
        program, *arguments = shlex.split(line)
        with pytest.raises(SystemExit) as ended:
            MAINS[program](arguments)
        return int(str(ended.value.code or 0)), *capsys.readouterr()

    return called


EXPECTED_ADDRESS = "expected HOST:PORT, several separated by ';', such as 127.0.0.1:9876"
CHECK = "check that one is running there, and that the address is right"
NOBODY = f"no name server answers ({{dead}}: connection refused: nothing listens there): {CHECK}"
NO_NAMESRV = "{broker} is not a name server, perhaps a broker: give a name server's address with -n"
TAKEN = "the port is taken; give another one with --port or listenPort, or 0 for any free port"
IN_USE = (
    "is in use by another broker (its file `lock` is locked); stop that one, or use another folder (storePathRootDir; for "
    "`pocketmq up`: --store)"
)

USAGE = {
    # Commands, options and arguments
    "pocketmq prodcue T hello": "unknown command 'prodcue'; did you mean produce?",
    "pocketmq fly": "unknown command 'fly'",
    "pocketmq delay list": "unknown command 'list'; did you mean ls?",
    "pocketmq delay cancle x": "unknown command 'cancle'; did you mean cancel?",
    "pocketmq produce T --tga x hello": "unknown option --tga; did you mean --tag?",
    "pocketmq -n {namesrv} produce T hello": "unknown option -n: options come after the command, as in `pocketmq up ...`",
    "pocketmq produce": "TOPIC is missing",
    "pocketmq produce T hello --tag": "option --tag needs a value",
    "pocketmq clock advanc 30m": "ACTION advanc: expected one of read, advance; did you mean advance?",
    "pocketmq clock advance": "DURATION is missing: write `pocketmq clock advance 30m`",
    "mqshutdown brokr": "KIND brokr: expected one of broker, namesrv; did you mean broker?",
    "mqbroker --prot 1": "unknown option --prot; did you mean --port?",
    "mqbroker start": "got unexpected extra argument (start)",
    "mqnamesrv -c": "option -c needs a value",
    "pocketmq trace key": "STORE is missing",
    "pocketmq export store": "option --out is missing",
    # Values
    "pocketmq produce T hello -n nohost": f"--namesrv nohost: {EXPECTED_ADDRESS}",
    "pocketmq produce T hello -n host:99999": f"--namesrv host:99999: {EXPECTED_ADDRESS}",
    "pocketmq consume T -n ''": f"--namesrv '': {EXPECTED_ADDRESS}",
    "mqbroker -n nohost": f"--namesrvAddr nohost: {EXPECTED_ADDRESS}",
    "mqnamesrv --port http": "--port http: expected a whole number from 0 to 65535",
    "pocketmq up --port 70000": "--port 70000: expected a whole number from 0 to 65515",
    "pocketmq produce T hello --count 0": "--count 0: expected a whole number not below 1",
    "pocketmq produce T hello --count 1.5": "--count 1.5: expected a whole number not below 1",
    "pocketmq produce T hello --delay-level 19": "--delay-level 19: expected a whole number from 0 to 18",
    "pocketmq produce T hello --delay 5": "--delay 5: expected a duration such as 250ms, 10s, 30m, 1h30m or 400d",
    "pocketmq produce T hello --delay 5s --delay-level 2": (
        "--delay and --delay-level both set the delivery time: use only one of them"
    ),
    "pocketmq consume T --timeout -1": "--timeout -1: expected a number not below 0",
    "pocketmq delay ls --to tomorrow": (
        "--to tomorrow: expected a time such as 2026-11-21, 2026-11-21T12:30:05.250, 2026-11-21T12:30:05+00:00 or epoch ms, "
        "or +30m"
    ),
    "pocketmq delay show": "no message is chosen: give an ID, --key or --topic",
    "pocketmq produce 'bad topic' hello -n {namesrv}": (
        "topic 'bad topic' contains other characters than letters, digits, '_', '-', '%' and '|'"
    ),
    "pocketmq consume T --group 'a b' -n {namesrv}": (
        "group 'a b' contains other characters than letters, digits, '_', '-', '%' and '|'"
    ),
    "pocketmq topic delet T": "unknown command 'delet'; did you mean delete?",
    "pocketmq topic create T --type FIFA": (
        "--type FIFA: expected one of NORMAL, FIFO, DELAY, TRANSACTION, MIXED, PRIORITY; did you mean FIFO?"
    ),
    "pocketmq topic create T --queues 0": "--queues 0: expected a whole number from 1 to 65536",
    "pocketmq topic set T": "nothing is to be changed: give --queues, --perm or --type",
    "pocketmq topic set T --perm 6": "--perm 6: expected one of rw, r, w, none",
    "pocketmq group reset g T": "option --to is missing",
    "pocketmq group reset g T --to end": (
        "--to end: expected earliest, latest, a queue offset such as 1200, or a time such as 2026-11-21T12:30:05"
    ),
    "pocketmq dlq resend g": "no dead letter is chosen: give --id ID, repeatable, or --all",
    "pocketmq dlq resend g --all --id 1": "--id chooses messages and --all takes all: use only one of them",
    # Files
    "pocketmq produce T hello --credentials nowhere": "--credentials nowhere: No such file or directory",
    "pocketmq produce T hello --credentials tools.yml": (
        "tools.yml: accessKey and secretKey are required, as in mqadmin's conf/tools.yml"
    ),
    "pocketmq produce T hello --tls nowhere": "--tls nowhere: No such file or directory",
    "pocketmq up -c nowhere": "-c nowhere: No such file or directory",
    "pocketmq up -c settings.json": (
        "-c settings.json: line 1: not a properties file: expected key=value, found '{{\"listenPort\"'"
    ),
    "pocketmq up --store file": "--store file: this is a file, expected a folder",
    "pocketmq up --memory --store s": "--memory keeps no files and --store DIR does: use only one of them",
    "pocketmq up --set listenPort=1": "listenPort: cannot be set here: use --port",
    "pocketmq up --set enablePropertyFilte=true": "unknown key enablePropertyFilte; did you mean enablePropertyFilter?",
    "pocketmq up --set maxMessageSize": "--set maxMessageSize: expected key=value",
    "pocketmq up --set maxMessageSize=4M": "maxMessageSize=4M: expected a whole number from 1 to 2147483647",
    "pocketmq up --cluster 2m-2s": (
        "--cluster 2m-2s: expected one of 2m-noslave, 2m-2s-async, 2m-2s-sync; did you mean 2m-2s-sync?"
    ),
    "pocketmq up --brokers 100": "--brokers 100: expected a whole number from 1 to 20",
    "pocketmq up --advertise host:port": "--advertise host:port: expected HOST or HOST:PORT, such as 192.168.0.7",
}
"""Command line -> the error, which is followed by a line that names the help; exit code 2."""

CONFIGS = {
    "pocketmq audit nowhere": ["no store at nowhere: no such file or folder"],
    "mqbroker -c nowhere": ["-c nowhere: No such file or directory"],
    "mqbroker -c plain": ["-c plain: Is a directory"],
    "mqbroker -c escape.conf": ["-c escape.conf: line 1: \\u is not followed by four hexadecimal digits"],
    "mqnamesrv -c binary.conf": ["-c binary.conf: line 1: not a properties file: it has the control character '\\x03'"],
    "mqbroker -c range.conf": [
        "mappedFileSizeCommitLog=100: expected a whole number from 4096 to 2147483647",
        "listenPort=nine: expected a whole number from 0 to 65535",
    ],
}
"""Command line -> the errors of a file; exit code 2."""

FAILURES = {
    "pocketmq produce T hello -n {dead}": NOBODY,
    "pocketmq consume T -n {dead}": NOBODY,
    "pocketmq delay ls -n {dead}": NOBODY,
    "pocketmq topic ls -n {dead}": NOBODY,
    "pocketmq dlq resend g --all -n {dead}": NOBODY,
    "pocketmq group ls -n {broker}": f"{NO_NAMESRV} (request type 106 not supported)",
    "pocketmq topic describe Nowhere -n {namesrv}": (
        "topic 'Nowhere' does not exist; `pocketmq topic create Nowhere` creates it"
    ),
    "pocketmq topic create T --cluster none -n {namesrv}": "there is no cluster 'none'; there are: DefaultCluster",
    "pocketmq group describe nobody -n {namesrv}": (
        "consumer group 'nobody' does not exist; `pocketmq group create nobody` creates it"
    ),
    "pocketmq dlq show nobody -n {namesrv}": (
        "consumer group 'nobody' has no dead letters; `pocketmq dlq ls` lists the groups that have"
    ),
    "pocketmq produce T hello -n {broker}": f"{NO_NAMESRV} (request type 105 not supported)",
    "pocketmq clock -n {broker}": f"{NO_NAMESRV} (request type 106 not supported)",
    "pocketmq consume Nowhere -n {namesrv}": "topic 'Nowhere' does not exist; `pocketmq produce Nowhere hello` creates it",
    "pocketmq clock advance 1h -n {namesrv}": "the clock can be advanced only in a broker started with --test-clock",
    "pocketmq delay cancel 0123 --yes -n {namesrv}": "no such message is pending",
}
"""Command line -> the error; exit code 1."""

STORES = {
    "pocketmq store dump": (64, "ROOT is missing"),
    "pocketmq store veriyf s": (64, "unknown command 'veriyf'; did you mean verify?"),
    "pocketmq store dump store --body xml": (64, "--body xml: expected one of none, text, base64, hex"),
    "pocketmq store rejoin store --master nohost": (64, "--master nohost: expected HOST:PORT, such as 127.0.0.1:10911"),
    "pocketmq store verify nowhere": (
        3, "there is no folder nowhere: give the store's root, storePathRootDir of the broker",
    ),
    "pocketmq store verify file": (3, "file is a file: give the store's root, the folder that has `commitlog` in it"),
    "pocketmq store verify plain": (
        3, "plain is not a store: there is no folder plain/commitlog (if the log is elsewhere, give its folder with "
        "--commitlog)",
    ),
    "pocketmq store import other nowhere": (3, "cannot read nowhere: No such file or directory"),
    "pocketmq store import store file": (
        3, f"store {IN_USE}",
    ),
}  # fmt: skip
"""Command line -> exit code and error."""


def _told(command_line: str, error: str, complaints: str) -> list[str]:
    """Return the lines after the error; fail if the error is not the first line."""
    first, *rest = complaints.splitlines()
    assert first == f"{command_line.split()[0]}: error: {error}", complaints
    return rest


@pytest.mark.parametrize("command_line", USAGE)
def test_wrong_command_line(run, place, command_line):
    error = USAGE[command_line].format(**place._asdict())
    code, shown, complaints = run(command_line.format(**place._asdict()))
    rest = _told(command_line, error, complaints)
    assert (code, shown) == (2, "")
    assert len(rest) == 1 and re.fullmatch(r"Try '[a-z ]+ --help'\.", rest[0])


@pytest.mark.parametrize("command_line", CONFIGS)
def test_wrong_file(run, command_line):
    program = command_line.split()[0]
    assert run(command_line) == (2, "", "".join(f"{program}: error: {error}\n" for error in CONFIGS[command_line]))


@pytest.mark.parametrize("command_line", FAILURES)
def test_failed_command_prints_one_line(run, place, command_line):
    code, shown, complaints = run(command_line.format(**place._asdict()))
    assert _told(command_line, FAILURES[command_line].format(**place._asdict()), complaints) == []
    assert (code, shown) == (1, "")


@pytest.mark.parametrize("command_line", STORES)
def test_mistake_with_a_store(run, command_line):
    expected_code, error = STORES[command_line]
    code, shown, complaints = run(command_line)
    rest = _told(command_line, error, complaints)
    assert (code, shown, len(rest)) == (expected_code, "", 1 if expected_code == 64 else 0)


def test_host_name_that_does_not_exist(run):
    code, shown, complaints = run("pocketmq produce T hello -n no-such-host.invalid:9876")
    assert (code, shown) == (1, "")
    expected = r"no name server answers \(no-such-host\.invalid:9876: the host name cannot be resolved: [^()]+\): " + CHECK
    assert re.fullmatch(f"pocketmq: error: {expected}\n", complaints)


def test_no_command_shows_the_help(run):
    code, shown, complaints = run("pocketmq")
    assert (code, shown) == (2, "")
    assert complaints.startswith("Usage: pocketmq") and complaints.endswith(
        "no command is given: one of those above is needed\n"
    )


def test_namesrv_addr_variable_applies_to_all_commands(run, monkeypatch, place):
    monkeypatch.setenv("NAMESRV_ADDR", place.namesrv)
    assert run("pocketmq produce T --tag x hello")[::2] == (0, "")
    assert run("pocketmq consume T --from-start --count 1 --timeout 30")[1].endswith("tag=x  hello\n")
    for command_line in ("pocketmq clock", "pocketmq delay ls", "mqadmin topicList"):
        code, _, complaints = run(command_line)
        assert (code, complaints) == (0, ""), command_line
    monkeypatch.setenv("NAMESRV_ADDR", "nohost")
    code, _, complaints = run("pocketmq clock")
    assert (code, complaints.splitlines()[0]) == (2, f"pocketmq: error: NAMESRV_ADDR nohost: {EXPECTED_ADDRESS}")


def test_each_of_two_consume_commands_gets_all_and_leaves_no_group(run, place):
    assert run(f"pocketmq produce Both one two three -n {place.namesrv}")[0] == 0
    groups = run(f"mqadmin consumerProgress --json -n {place.namesrv}")[1]
    command = [sys.executable, "-P", "-m", "pocketmq", "consume", "Both", "--from-start", "--count", "4", "--timeout", "60"]
    runs = [subprocess.Popen([*command, "-n", place.namesrv], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    heard = [[process.stdout.readline().split()[-1] for _ in range(3)] for process in runs if process.stdout is not None]
    assert [sorted(bodies) for bodies in heard] == [["one", "three", "two"]] * 2
    topics = run(f"mqadmin topicList -n {place.namesrv}")[1]
    assert topics.count("%RETRY%pocketmq-consume-") == 2  # both consumers are running
    assert run(f"pocketmq produce Both four -n {place.namesrv}")[0] == 0
    assert [process.communicate(timeout=60)[0].split()[-1] for process in runs] == ["four"] * 2
    assert [process.returncode for process in runs] == [0, 0]
    assert "pocketmq-consume" not in run(f"mqadmin topicList -n {place.namesrv}")[1]
    assert run(f"mqadmin consumerProgress --json -n {place.namesrv}")[1] == groups


@pytest.mark.parametrize(("number", "expected"), [(2, 130), (15, 143)])
def test_consume_ended_by_a_signal_leaves_no_group(run, place, number, expected):
    assert run(f"pocketmq produce Ended one -n {place.namesrv}")[0] == 0
    command = [sys.executable, "-P", "-m", "pocketmq", "consume", "Ended", "--from-start", "-n", place.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().endswith("one\n")
        process.send_signal(number)
        _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (expected, "")
    assert "pocketmq-consume" not in run(f"mqadmin topicList -n {place.namesrv}")[1]


STARTS = {
    "pocketmq.broker --port {taken}": (
        "mqbroker: error: cannot start: cannot listen on 127.0.0.1:{taken} (listenPort={taken}): " + TAKEN
    ),
    "pocketmq.namesrv --port {taken}": (
        "mqnamesrv: error: cannot start: cannot listen on 127.0.0.1:{taken} (listenPort={taken}): " + TAKEN
    ),
    "pocketmq.broker --port 0 -c start.conf": (
        "mqbroker: error: cannot start: storePathRootDir={folder}/file: {folder}/file is a file, expected a folder"
    ),
    "pocketmq up --port 0 --store store": "pocketmq: error: cannot start: {folder}/store " + IN_USE,
    "pocketmq up --port 0 --memory --set brokerName=": (
        "pocketmq: error: cannot start: brokerName=: expected a name that is not empty"
    ),
    "pocketmq up --port 0 --memory --set messageDelayLevel=1x": (
        "pocketmq: error: cannot start: messageDelayLevel: level 1 is '1x': its unit must be one of s m h d"
    ),
    "pocketmq up --port 0 --memory --set bindAddress=192.0.2.1": (
        "pocketmq: error: cannot start: cannot listen on 192.0.2.1:0 (listenPort=0): this machine does not have that "
        "address; see bindAddress"
    ),
    "pocketmq up --port 0 --memory --set tls.server.certPath=/nowhere": (
        "pocketmq: error: cannot start: tls.server.certPath=/nowhere, tls.server.keyPath is not set: "
        "No such file or directory"
    ),
}
"""Arguments of `python -m` -> the last line on standard error; exit code 1."""


@pytest.mark.parametrize("arguments", STARTS)
def test_server_that_cannot_start(place, arguments, monkeypatch):
    monkeypatch.setenv("POCKETMQ_RUN", str(place.folder / "run"))
    command = [sys.executable, "-P", "-m", *arguments.format(**place._asdict()).split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=place.folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == STARTS[arguments].format(**place._asdict())
    assert "Traceback" not in done.stderr


def test_broker_reports_an_invalid_namesrv_addr_variable(place, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "nohost")
    command = [sys.executable, "-P", "-m", "pocketmq.broker", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=place.folder)
    said = f"mqbroker: error: cannot start: NAMESRV_ADDR=nohost: {EXPECTED_ADDRESS}\n"
    assert (done.returncode, done.stdout, done.stderr.splitlines(keepends=True)[-1]) == (1, "", said)


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(run, name):
    for option in ("-h", "--help"):
        code, shown, complaints = run(f"{name} {option}")
        assert (code, complaints) == (0, "")
        assert shown.startswith("Usage: ")


@pytest.mark.parametrize("name", OURS)
def test_help_explains_each_command_and_option_and_has_an_example(run, name):
    command = OURS[name]
    _, shown, _ = run(f"{name} --help")
    assert shown.startswith(f"Usage: {name} ")
    assert command.help and command.help.endswith(".")
    assert re.search(rf"\nExamples:\n  ({name.split()[0]}|mqadmin) ", shown)
    context = click.Context(command, info_name=name)
    assert [param.name for param in command.get_params(context) if not getattr(param, "help", None)] == []
    if isinstance(command, Group):
        assert all(f"\n  {below} " in shown for below in command.rows)


@pytest.mark.parametrize("name", OURS)
def test_examples_are_valid_command_lines(name):
    valid = 0
    for line in OURS[name].examples.strip("\n").splitlines():
        words = shlex.split(re.split(r" {2,}| [|<>] ", line)[0])
        programs = commands_page.programs() | {"mqadmin": None}
        command = programs[words[0]]
        if command is None or words[1:2] == ["help"] or (words[1:2] == ["admin"]):
            continue
        context = command.make_context(words[0], words[1:])
        while isinstance(context.command, Group):
            below, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
            assert command is not None
            context = command.make_context(below, rest, parent=context)
        valid += 1
    assert valid or name == "pocketmq admin"


@pytest.mark.parametrize("name", [*OURS, "mqadmin"])
def test_version_of_every_command(run, name):
    assert run(f"{name} --version") == (0, f"{name.split()[0]} {__version__}\n", "")


def test_page_lists_every_command_and_option():
    page = commands_page.PAGE.read_text()
    listed = page.partition(commands_page.BEGIN)[2].partition(commands_page.END)[0]
    assert listed == commands_page.rendered(), "docs/commands.md differs: run `python -m tests.pocketmq.commands_page`"
    for name, command in COMMANDS.items():
        assert f"### {name}\n" in page
        if name not in commands_page.ELSEWHERE:
            section = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
            options = [option for param in command.params if isinstance(param, click.Option) for option in param.opts]
            assert [option for option in options if option not in section] == [], name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_works_as_documented(run, monkeypatch, shell):
    assert f"_POCKETMQ_COMPLETE={shell}_source pocketmq" in commands_page.PAGE.read_text()
    monkeypatch.setenv("_POCKETMQ_COMPLETE", f"{shell}_source")
    code, shown, complaints = run("pocketmq")
    assert (code, complaints) == (0, "") and f"_POCKETMQ_COMPLETE={shell}_complete" in shown
    monkeypatch.setenv("_POCKETMQ_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "pocketmq consume --fr")
    monkeypatch.setenv("COMP_CWORD", "--fr" if shell == "fish" else "2")
    assert "--from-start" in run("pocketmq")[1]
