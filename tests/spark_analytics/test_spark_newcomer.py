"""The newcomers' paths with Spark: the tutorial, and the page for data engineers."""

from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks_of
from tests.docs.paths import PATHS, pages
from tests.docs.session import TIMEOUT_S, run_path

pytestmark = pytest.mark.spark


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("page", pages(needs="spark"))
def test_page_keeps_its_promises(page: str, tmp_path: Path) -> None:
    run_path(blocks_of(ROOT / page), tmp_path, PATHS[page].before)
