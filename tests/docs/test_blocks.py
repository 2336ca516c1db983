"""Each block of code in the pages is run by a test, or is marked as one that is not run; what pages name exists."""

import re

import pytest
import yaml

from tests.deploy.declared import BROKER_KEYS, NAMESRV_KEYS
from tests.docs.likeness import is_like
from tests.docs.page import DOCS, PAGES, ROOT, blocks_of
from tests.docs.paths import PATHS

TRANSLATIONS = {"tutorial.md": "tutorial.zh-CN.md"}


def test_each_block_is_run_or_marked() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert len(blocks) > 150
    assert [block.place for block in blocks if not block.mark] == []
    assert [block.place for block in blocks if block.mark != "output" and block.mark != "run" and not block.argument] == []


def test_each_page_with_blocks_to_run_is_a_path() -> None:
    pages = {str(page.relative_to(ROOT)) for page in PAGES if any(block.mark == "run" for block in blocks_of(page))}
    assert pages - {f"docs/{translation}" for translation in TRANSLATIONS.values()} == set(PATHS)


def test_tests_that_run_blocks_exist_and_name_the_page() -> None:
    named = {(block.page, block.argument) for page in PAGES for block in blocks_of(page) if block.mark == "run by"}
    assert len(named) > 5
    assert [test for _, test in named if not (ROOT / test).is_file()] == []


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_translation_has_the_same_blocks(name: str) -> None:
    original, translation = (blocks_of(DOCS / page) for page in (name, TRANSLATIONS[name]))
    assert [(block.language, block.text) for block in translation] == [(block.language, block.text) for block in original]


def test_each_row_of_the_feature_table_has_a_test() -> None:
    table = (DOCS / "python-client.md").read_text().partition("<!-- features -->\n")[2].partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) > 30
    for feature, ours, _, _, test in rows:
        if ours == "no":
            assert test == "", feature
            continue
        file, _, name = test.strip("`").partition("::")
        source = (ROOT / "tests" / file).read_text()
        assert re.search(rf"def {name}\(", source), f"{feature}: {test}"


def test_keys_in_the_table_of_limits_exist() -> None:
    table = (DOCS / "limits.md").read_text().partition("<!-- limits -->\n")[2].partition("<!-- end -->")[0]
    keys = {key for line in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", line.strip("|").split("|")[2])}
    assert len(keys) > 15
    assert keys - BROKER_KEYS - NAMESRV_KEYS - {"grpcMaxClients", "retryMaxTimes"} == set()


def test_each_page_is_in_the_navigation_once() -> None:
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text())
    listed = re.findall(r"(?<=: |- )(\S+\.md)", str(yaml.safe_dump(yaml.safe_load(text)["nav"])))
    here = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert sorted(name for name in listed if (DOCS / name).is_file()) == sorted(here)


@pytest.mark.parametrize(
    ("printed", "shown", "is_so"),
    [
        ("due 2026-11-21 17:39:39.542\n", "due 2025-01-01 00:00:00.001\n", True),
        ("id C00002024EA86E42538D6AADE0E50000\n", "id C00002024EA86E42538D6AADE0F20001\n", True),
        ("3  records\n", "3 records\n", True),
        ("4 records\n", "3 records\n", False),
        ("a\nb\nc\n", "a\n...\nc\n", True),
        ("a\nb\n", "a\n...\nc\n", False),
        ("took 0.04 s, and more\n", "took 1.2 s...\n", True),
        ("a\nb\n", "a\n", False),
    ],
)
def test_output_is_compared_without_times_and_ids(printed: str, shown: str, is_so: bool) -> None:
    assert is_like(printed, shown) == is_so
