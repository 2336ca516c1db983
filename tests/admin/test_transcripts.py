"""Commands whose output no recording of Apache's tool covers print what `tests/admin/transcripts` shows, byte for byte.

A transcript is for one pair of servers. `$ command` is a run of mqadmin, then its output follows, with `! ` before lines of
standard error; `$ cat file` shows a file. ` | word word` at the end of a command: only lines that contain one of these words
are shown. What differs between runs is shown as BROKER, NAMESRV, TIME, NUMBER, ID and FOLDER.
`python -m tests.admin.test_transcripts` runs the commands and writes their present output.
"""

import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.admin.tool import main
from pocketmq.cli.processes import start_up
from tests.broker.acl_files import PLAIN_ACL

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
SIGNED = "accessKey: rocketmq2\nsecretKey: '12345678'\n"
ROOT = json.dumps({"username": "rocketmq2", "password": "12345678"})
SETTINGS = {
    "acl": ["aclEnable=true"],
    "auth": ["authenticationEnabled=true", "authorizationEnabled=true", f"initAuthenticationUser={ROOT}"],
}
MASKS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"\b1[6-9]\d{11}\b", "TIME"),
    (r"\b\d+ms\b|(?<![\d.])\d+\.\d\d(?![\d.])|(?<=true {20})\d+", "NUMBER"),
    (r" +NUMBER", " NUMBER"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    yield tmp_path


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_the_output_of_commands(path: Path, folder: Path) -> None:
    assert transcript(path, folder) == path.read_text()


def transcript(path: Path, folder: Path) -> str:
    """Run the commands of a transcript at new servers; return it with their output."""
    (folder / "conf").mkdir()
    (folder / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    (folder / "conf" / "tools.yml").write_text(SIGNED)
    topics = [{"topicName": "Listed", "readQueueNums": 3, "writeQueueNums": 5}, {"topicName": "Other"}]
    (folder / "topics.json").write_text(json.dumps(topics))
    (folder / "groups.json").write_text(json.dumps([{"groupName": "Listed", "retryMaxTimes": 3}]))
    settings = [word for one in SETTINGS.get(path.stem, []) for word in ("--set", one)]
    server = start_up(folder / "up", "--memory", *settings)
    try:
        route = json.loads(_run(f"topicRoute -t TBW102 -n {server.address} --json"))
        (broker,) = (data["brokerAddrs"]["0"] for data in route["brokerDatas"])
        names = {"BROKER": broker, "NAMESRV": server.address, "FOLDER": str(folder)}
        commands = [line[2:] for line in path.read_text().splitlines() if line.startswith("$ ")]
        return "".join(f"$ {command}\n{_output(command, names)}" for command in commands)
    finally:
        server.stop()


def _output(command: str, names: dict[str, str]) -> str:
    command, _, wanted = command.partition(" | ")
    for mask, value in names.items():
        command = command.replace(mask, value)
    output = _run(f"{command} -n {names['NAMESRV']}" if " -n " not in command else command)
    for mask, value in names.items():
        output = output.replace(value, mask)
    for pattern, mask in MASKS:
        output = re.sub(pattern, mask, output)
    lines = output.splitlines(keepends=True)
    return "".join(line for line in lines if not wanted or any(word in line for word in wanted.split()))


def _run(command: str) -> str:
    """Run mqadmin in this process; return its standard output, then the lines of standard error after `! `."""
    if command.startswith("cat "):
        return Path(command.split()[1]).read_text() + "\n"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main(command.split())
    return out.getvalue() + "".join(f"! {line}\n" for line in err.getvalue().splitlines())


if __name__ == "__main__":
    for one in TRANSCRIPTS:
        with tempfile.TemporaryDirectory() as made:
            os.environ["ROCKETMQ_HOME"] = made
            one.write_text(transcript(one, Path(made)))
