"""Our mqadmin and Apache's do the same: a table of cases, each run by both tools at our servers, and by ours at Apache's.

docs/mqadmin.md is made from the outcomes: `pytest tests/interop/test_mqadmin_matrix.py --write-mqadmin-page` writes it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin.commands import FAMILIES as COMMANDS
from tests.interop.conftest import need_java
from tests.interop.mqadmin_matrix.cases import FAMILIES
from tests.interop.mqadmin_matrix.columns import Table, run_all
from tests.interop.mqadmin_matrix.page import page

CASES = [case for cases in FAMILIES.values() for case in cases]
PAGE = Path(__file__).parents[2] / "docs" / "mqadmin.md"
NUMBERED = [pytest.param(number, id=f"{number}-{case.name}") for number, case in enumerate(CASES)]

NOT_AMONG_THE_CASES = {
    "startMonitoring": "it does not end",
    "clusterRT": "it does not end",
    "updateTopicList": "since 5.x",
    "updateSubGroupList": "since 5.x",
    "setConsumeMode": "since 5.x",
    "haStatus": "since 5.x",
}
"""Commands that have tests in tests/admin instead."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    need_java()
    return run_all(tmp_path_factory.mktemp("matrix"), CASES)


@pytest.mark.parametrize("number", NUMBERED)
def test_our_tool_does_what_apaches_does(table: Table, number: int) -> None:
    case, apaches, ours = CASES[number], table.apaches_tool[number], table.ours[number]
    assert apaches.missing(case.shows) == [], apaches
    assert ours.missing(case.shows) == [], ours
    assert (apaches.exit_code, ours.exit_code) == (case.exit_code, case.exit_code)
    if case.whole:
        assert ours.facts == apaches.facts


@pytest.mark.parametrize("number", NUMBERED)
def test_our_tool_does_it_at_apaches_servers(table: Table, number: int) -> None:
    case, ours, other = CASES[number], table.ours[number], table.ours_at_apache[number]
    assert other.exit_code == case.exit_code
    if case.at_apache is not None:
        assert case.why
        assert other.missing(case.at_apache) == [], other
        return
    assert other.missing(case.shows) == [], other
    if case.whole:
        assert other.facts == ours.facts


def test_the_page_is_what_happens(table: Table, pytestconfig: pytest.Config) -> None:
    text = page(FAMILIES, table)
    if pytestconfig.getoption("write_mqadmin_page", default=False):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


@pytest.mark.parametrize("name", ["configs.json", "metadata.json", "metrics.json", "topic.json", "subscriptionGroup.json"])
def test_exported_files_are_the_same(table: Table, name: str) -> None:
    apaches, ours = (json.loads((table.folder / column / "files" / name).read_text()) for column in ("apaches_tool", "ours"))
    assert comparable(ours) == comparable(apaches)


def comparable(document: Any) -> Any:
    """Return a document without times and rates."""
    if not isinstance(document, dict):
        return document
    return {
        key: comparable(value)
        for key, value in document.items()
        if key not in ("exportTime", "dataVersion", "tps", "totalTps")
    }


def test_every_command_is_among_the_cases() -> None:
    commands = {name for names in COMMANDS.values() for name in names}
    assert commands - {case.name for case in CASES} == set(NOT_AMONG_THE_CASES)
    assert len(CASES) >= 101
    assert sum("CODE" in case.shows[0] or case.exit_code for case in CASES) >= 30, "refusals"
