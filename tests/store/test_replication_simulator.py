"""Some seeds of the replication simulator, and tests that it detects incorrect slaves."""

from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.store.ha.log_follower import LogFollower
from tests.store.replication_simulator import Machine, cpu_s_per_mb_of_bursts, walk
from tests.support.amount import cases

SEEDS = cases(8, 40)
CPU_S_PER_MB_MAX = 0.5
MODES = pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@MODES
def test_no_acknowledged_message_is_lost_and_logs_stay_the_same(flush: str) -> None:
    results = [walk(seed, flush) for seed in range(SEEDS)]
    failed = [
        f"python -m tests.store.replication_simulator --seeds {seed}:{seed + 1} --flush {flush}: {why}"
        for seed, why, _ in results
        if why
    ]
    assert not failed, "\n".join(failed)
    walks = [one for _, _, one in results if one is not None]
    assert sum(one.promotions for one in walks) > SEEDS and sum(len(one.acknowledged) for one in walks) > 10 * SEEDS


@pytest.mark.parametrize("with_ext", [False, True])
@pytest.mark.parametrize("seed", range(cases(2, 4)))
def test_work_of_a_slave_grows_only_with_what_it_receives(seed: int, with_ext: bool) -> None:
    assert cpu_s_per_mb_of_bursts(seed, with_ext) < CPU_S_PER_MB_MAX


def _reports_what_it_was_sent(monkeypatch: Any) -> None:
    """Let the slave report records before they are synced."""
    monkeypatch.setattr(Machine, "durable_offset", property(lambda machine: machine.store.max_physical_offset))


def _skips_bytes(monkeypatch: Any) -> None:
    """Let the slave drop large pieces of what it receives."""
    receive = LogFollower.receive

    def careless(self: LogFollower, data: bytes) -> int:
        return receive(self, data) if len(data) < 3000 else 0

    monkeypatch.setattr(LogFollower, "receive", careless)


@pytest.mark.parametrize("fault", [_reports_what_it_was_sent, _skips_bytes])
def test_simulator_detects_an_incorrect_slave(fault: Callable[[Any], None], monkeypatch: Any) -> None:
    fault(monkeypatch)
    assert any(walk(seed, "SYNC_FLUSH")[1] for seed in range(20))
