"""The command line of mqadmin: help, completion, refusals, forms of output."""

import importlib
import io
import json
import subprocess
import sys

import click
import pytest

from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.commands import FAMILIES
from pocketmq.admin.output import Output, Table
from pocketmq.admin.tool import declared, main
from pocketmq.runtime.command_line.commands import run as run_command
from pocketmq.runtime.command_line.printer import Printer
from tests.admin.conftest import Mqadmin

SUMMARIES = {name: summary for family in FAMILIES.values() for name, summary in family.items()}
HEAVY_MODULES = {"msgspec", "numpy", "rich", "asyncio", "pocketmq.admin.admin_client"}
"""Modules that `mqadmin help` must not import."""


def test_command_list_matches_the_declared_commands() -> None:
    for family, names in FAMILIES.items():
        module = importlib.import_module(f"pocketmq.admin.commands.{family}")
        found = {value.name for value in vars(module).values() if isinstance(value, click.Command)}
        assert found == set(names), family
    assert len(SUMMARIES) == sum(map(len, FAMILIES.values())), "a name is in two families"


def test_flags_of_every_command_are_distinct_and_explained() -> None:
    for name in SUMMARIES:
        options = declared(name).params
        flags = [flag for option in options for flag in option.opts]
        assert len(flags) == len(set(flags)), name
        assert all(getattr(option, "help", None) for option in options), name
        assert "-h" not in flags, name


def test_help_lists_the_commands_without_importing_them() -> None:
    probe = "import sys; import contextlib; from pocketmq.admin.tool import main\n"
    probe += "with contextlib.suppress(SystemExit): main(['help'])\n"
    probe += "print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert set(SUMMARIES) <= set(done.stdout.split())
    loaded = {name.strip(" '[]\n") for name in done.stderr.split(",")}
    assert "pocketmq.admin.tool" in loaded
    assert not HEAVY_MODULES & loaded


def test_help_of_a_command(alone: Mqadmin) -> None:
    for arguments in (("help", "topicRoute"), ("topicRoute", "-h"), ("topicRoute", "--help"), ("help", "TOPICROUTE")):
        printed = alone(*arguments)
        assert printed.exit_code == 0
        assert "-t, --topic <arg>" in printed.out
        assert "NAMESRV_ADDR" in printed.out


def test_version(alone: Mqadmin) -> None:
    assert alone("--version").out.startswith("mqadmin 0.")


def test_without_a_command_the_list_is_shown(alone: Mqadmin) -> None:
    assert alone() == alone("help")


def test_an_unknown_command_is_reported_as_by_apache(alone: Mqadmin) -> None:
    for arguments in (("topicRouts",), ("help", "topicRouts")):
        printed = alone(*arguments)
        assert (printed.exit_code, printed.out) == (0, "The sub command topicRouts not exist.\n")
        assert "topicRoute" in printed.err


def test_a_missing_option_ends_with_1(alone: Mqadmin) -> None:
    printed = alone("topicRoute")
    assert printed.exit_code == 1
    assert "option --topic is missing" in printed.err
    assert alone("topicRoute", "-t", "x", "--no-such-option").exit_code == 1


def test_an_unreachable_name_server_is_reported(alone: Mqadmin) -> None:
    printed = alone("topicRoute", "-t", "x", "-n", "127.0.0.1:1")
    assert printed.exit_code == 0
    assert printed.err.startswith("mqadmin: error: connect to [127.0.0.1:1] failed: ")
    printed = alone("topicRoute", "-t", "x", "-n", "127.0.0.1:1", "--json")
    assert printed.exit_code == 1
    assert "connect to [127.0.0.1:1] failed" in printed.json["error"]["message"]


def test_an_address_without_a_port_is_refused(alone: Mqadmin) -> None:
    printed = alone("topicRoute", "-t", "x", "-n", "nohost")
    assert printed.exit_code == 1
    assert "--namesrvAddr nohost: expected HOST:PORT" in printed.err


def test_the_next_name_server_is_used_if_one_is_down(mqadmin: Mqadmin, namesrv: str) -> None:
    printed = mqadmin("topicRoute", "-t", "TBW102", "-n", f"127.0.0.1:1;{namesrv}")
    assert '"queueDatas":[' in printed.out
    assert printed.err == ""


def test_a_refusal_shows_code_and_remark(mqadmin: Mqadmin) -> None:
    printed = mqadmin("topicRoute", "-t", "Missing")
    assert printed.exit_code == 0
    assert "CODE: 17  DESC: No topic route info in name server for the topic: Missing" in printed.err
    printed = mqadmin("topicRoute", "-t", "Missing", "--json")
    assert (printed.exit_code, printed.json["error"]["code"]) == (1, 17)


def test_json_is_one_document(mqadmin: Mqadmin) -> None:
    queues = mqadmin("topicStatus", "-t", "TBW102", "--json").json
    assert [queue["queueId"] for queue in queues] == list(range(len(queues)))
    assert {"brokerName", "minOffset", "maxOffset", "lastUpdated"} <= queues[0].keys()


def test_a_list_is_aligned_in_a_pipe_and_drawn_on_a_terminal(mqadmin: Mqadmin) -> None:
    table = Table("#Broker Name|#QID", "%-32s  %s", "brokerName queueId")
    plain = mqadmin("topicStatus", "-t", "TBW102").out
    assert plain.startswith("#Broker Name                      #QID  #Min Offset")
    drawn = io.StringIO()
    output = Output(as_json=False, terminal=Printer(file=drawn, width=80))
    assert output.table(table, [("broker-a", 3)]) == [{"brokerName": "broker-a", "queueId": 3}]
    assert "Broker Name" in drawn.getvalue()
    assert "#" not in drawn.getvalue()
    assert "broker-a" in drawn.getvalue()


def test_shell_completes_command_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_MQADMIN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "mqadmin topicR")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == ["plain,topicRoute"]


def test_flags_of_several_letters_work_as_in_apaches_tool(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(run: Run, topic: str, total_queue_num: int, quiet: bool) -> object:
        return {"topic": topic, "total": total_queue_num, "quiet": quiet}

    total = option("-qn", "--totalQueueNum", "number of queues", type=int)
    quiet = option("-q", "--quiet", "another option with its first letter", is_flag=True)
    made = command("updateStaticTopic", TOPIC, total, quiet)(work)
    with pytest.raises(SystemExit):
        run_command(made, "mqadmin", ["-qn", "4", "-tA", "-q", "--json"])
    assert json.loads(capsys.readouterr().out) == {"topic": "A", "total": 4, "quiet": True}
