"""docs/deployment.md: files, commands, settings and figures in it exist."""

import re

from pocketmq.admin.tool import TOOL as MQADMIN
from pocketmq.cli.main import TOOL as POCKETMQ
from tests.deploy.declared import BROKER_KEYS, NAMESRV_KEYS
from tests.deploy.dockerfile import DEPLOY

ROOT = DEPLOY.parent
PAGE = (ROOT / "docs/deployment.md").read_text()


def test_files_exist():
    named = set(re.findall(r"(?:deploy|conf|docs|tests|\.github)/[\w./-]*\w/?", PAGE))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_commands_exist():
    admin = set(re.findall(r"mqadmin (\w+)", PAGE))
    assert admin and admin <= set(MQADMIN.list_commands(None))
    assert set(re.findall(r"pocketmq (up|store|produce|consume|\w+ --)", PAGE)) <= set(POCKETMQ.list_commands(None))
    for target in re.findall(r"(?:`|^ {4})make ([\w-]+)", PAGE, re.MULTILINE):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()


def test_settings_exist():
    set_there = set(re.findall(r"\b([a-z]\w+[A-Z]\w*)=", PAGE))
    assert len(set_there) > 5 and set_there <= BROKER_KEYS | NAMESRV_KEYS


def test_it_is_linked():
    assert "(docs/deployment.md)" in (ROOT / "README.md").read_text()
    assert "(deployment.md)" in (ROOT / "docs/operating.md").read_text()
