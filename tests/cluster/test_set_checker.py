"""A short run of the set checker; `make check-set` runs the long ones."""

from pathlib import Path

import pytest

from tests.cluster.set_checker import check
from tests.support.amount import cases


@pytest.mark.slow
@pytest.mark.parametrize(("flush", "seed"), [("ASYNC_FLUSH", 3), pytest.param("SYNC_FLUSH", 4, marks=pytest.mark.long)])
def test_acknowledged_messages_survive_kills_pauses_and_role_changes(flush: str, seed: int, tmp_path: Path) -> None:
    findings = check(tmp_path, cases(4, 6), flush, seed, lambda what: None, lambda: None)
    assert findings.is_good, findings.text()
    assert findings.acknowledged > 100
