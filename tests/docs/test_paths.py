"""A newcomer who does what a page says, block by block, gets what the page promises.

The paths that need a JVM are in tests/spark_analytics and tests/interop.
"""

from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks_of
from tests.docs.paths import PATHS, pages
from tests.docs.session import TIMEOUT_S, run_path


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("page", pages(needs=""))
def test_page_keeps_its_promises(page: str, tmp_path: Path) -> None:
    run_path(blocks_of(ROOT / page), tmp_path, PATHS[page].before, PATHS[page].names)
