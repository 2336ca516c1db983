"""For all tests: examples have no deadline, since their time depends on the machine, and the longest files run first."""

import pytest
from hypothesis import settings

settings.register_profile("pocketmq", deadline=None)
settings.load_profile("pocketmq")

LONGEST_FILES = (
    "test_spark_streaming.py",
    "test_client_failover.py",
    "test_acting_master.py",
    "test_store_exchange.py",
    "test_spark_cluster.py",
    "test_spark_report.py",
    "test_client_asks.py",
    "test_replication.py",
    "test_spark_source.py",
    "test_client_acl.py",
    "test_store_sql92.py",
    "test_pop_exchange.py",
    "test_transaction_exchange.py",
    "test_store_ext.py",
    "test_timer_exchange.py",
    "test_simulator.py",
    "test_spark_notebook.py",
    "test_disk_faults.py",
)
"""Test files that take longest, the longest first: begun last, one would leave the other process idle at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: number for number, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))
