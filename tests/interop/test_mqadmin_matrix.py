"""Our mqadmin and Apache's do the same: a table of cases, each run by both tools at our servers, and by ours at Apache's.

The commands for 5.x's users and ACLs are compared with Apache 5.5.0, all others with 4.9.4. docs/mqadmin.md is made from the
outcomes: `pytest tests/interop/test_mqadmin_matrix.py --write-mqadmin-page` writes it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin.commands import FAMILIES as COMMANDS
from tests.interop.conftest import need_java
from tests.interop.mqadmin_matrix.case import Case
from tests.interop.mqadmin_matrix.cases import AUTH_FAMILIES, FAMILIES
from tests.interop.mqadmin_matrix.columns import AuthColumn, Table, run_all
from tests.interop.mqadmin_matrix.page import page

CASES = [case for cases in FAMILIES.values() for case in cases]
PAGE = Path(__file__).parents[2] / "docs" / "mqadmin.md"
AUTH_CASES = [case for cases in AUTH_FAMILIES.values() for case in cases]


def numbered(cases: list[Case]) -> pytest.MarkDecorator:
    """Run a test for each case."""
    return pytest.mark.parametrize(
        "number", [pytest.param(number, id=f"{number}-{case.name}") for number, case in enumerate(cases)]
    )


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


@pytest.fixture(scope="module")
def auth_table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    need_java()
    return run_all(tmp_path_factory.mktemp("auth-matrix"), AUTH_CASES, AuthColumn, "5.5.0")


@numbered(CASES)
def test_both_tools_show_the_same_at_our_servers(table: Table, number: int) -> None:
    check_ours(CASES[number], table, number)


@numbered(AUTH_CASES)
def test_both_tools_show_the_same_users_and_acls_at_our_servers(auth_table: Table, number: int) -> None:
    check_ours(AUTH_CASES[number], auth_table, number)


def check_ours(case: Case, table: Table, number: int) -> None:
    """Check that both tools do the same at our servers."""
    apaches, ours = table.apaches_tool[number], table.ours[number]
    assert apaches.missing(case.shows) == [], apaches
    assert ours.missing(case.shows) == [], ours
    assert (apaches.exit_code, ours.exit_code) == (case.exit_code, case.exit_code)
    if case.whole:
        assert ours.facts == apaches.facts


@numbered(CASES)
def test_our_tool_shows_the_same_at_apaches_servers(table: Table, number: int) -> None:
    check_at_apache(CASES[number], table, number)


@numbered(AUTH_CASES)
def test_our_tool_shows_the_same_users_and_acls_at_apaches_servers(auth_table: Table, number: int) -> None:
    check_at_apache(AUTH_CASES[number], auth_table, number)


def check_at_apache(case: Case, table: Table, number: int) -> None:
    """Check that our tool shows the same at Apache's servers."""
    ours, other = table.ours[number], table.ours_at_apache[number]
    assert other.exit_code == case.exit_code
    if case.at_apache is not None:
        assert case.why
        assert other.missing(case.at_apache) == [], other
        return
    assert other.missing(case.shows) == [], other
    if case.whole:
        assert other.facts == ours.facts


def test_mqadmin_page_is_up_to_date(table: Table, auth_table: Table, pytestconfig: pytest.Config) -> None:
    text = page(FAMILIES, table, AUTH_FAMILIES, auth_table)
    if pytestconfig.getoption("write_mqadmin_page", default=False):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


@pytest.mark.parametrize("name", ["configs.json", "metadata.json", "metrics.json", "topic.json", "subscriptionGroup.json"])
def test_exported_files_are_the_same(table: Table, name: str) -> None:
    apaches, ours = (json.loads((table.folder / column / "files" / name).read_text()) for column in ("apaches_tool", "ours"))
    assert comparable(ours) == comparable(apaches, lambda value: pytest.approx(value, abs=0.02))


def comparable(document: Any, ratio: Callable[[float], object] = float) -> Any:
    """Return a document without times and rates. `ratio` converts the disk's use, which may change between two commands."""
    if not isinstance(document, dict):
        return document
    return {
        key: ratio(float(value)) if key.endswith("DiskRatio") else comparable(value, ratio)
        for key, value in document.items()
        if key not in ("exportTime", "dataVersion", "tps", "totalTps")
    }


def test_every_command_is_among_the_cases() -> None:
    commands = {name for names in COMMANDS.values() for name in names}
    assert commands - {case.name for case in CASES + AUTH_CASES} == set(NOT_AMONG_THE_CASES)
    assert len(CASES) >= 101
    assert sum("CODE" in case.shows[0] or case.exit_code for case in CASES) >= 30, "refusals"
