"""The documentation site is built without a warning, and a page of it loads nothing from another host."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.page import ROOT
from tests.docs.session import CI


@pytest.mark.long
@pytest.mark.skipif(find_spec("mkdocs") is None and not CI, reason="needs the extra docs")
def test_site_has_no_broken_link_and_needs_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    loaded = re.compile(r"<(script|img|iframe)[^>]* src=\"?(https?:)?//|<link[^>]* rel=\"?(stylesheet|preconnect)[^>]*//")
    assert [page.name for page in pages if loaded.search(page.read_text())] == []
    assert 'id="pocketmq.Producer.send_all"' in (tmp_path / "reference-api.html").read_text()
