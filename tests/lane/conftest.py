"""Fixtures of the tests that compare two brokers."""

import pytest


@pytest.fixture(autouse=True)
def endless_filter_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pull end early because its filter took long: on a busy machine that would happen to one of two brokers."""
    monkeypatch.setattr("pocketmq.store.queue.record_filter.BUDGET_S", 600.0)
