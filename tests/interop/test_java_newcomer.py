"""The newcomer's path of a Java team: Apache's client as the page shows it."""

from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks_of
from tests.docs.paths import PATHS
from tests.docs.session import TIMEOUT_S, run_path
from tests.interop import toolchain
from tests.interop.drivers import needed

PAGE = "docs/how-to/java-team.md"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xmx256m"

pytestmark = pytest.mark.interop


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.long
def test_page_keeps_its_promises(tmp_path: Path) -> None:
    with needed("java_4_9_4"):
        jars = toolchain.jars("4.9.4")
    before = f"ln -s {jars} lib\nexport JDK_JAVA_OPTIONS='{QUICK}'\n"
    run_path(blocks_of(ROOT / PAGE), tmp_path, before + PATHS[PAGE].before)
