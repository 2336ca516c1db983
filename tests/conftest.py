"""For all tests: examples have no deadline, as their time depends on the machine; order of the files; slow files."""

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
    "test_mqadmin_matrix.py",
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

SLOW_FILES = frozenset(
    {
        "test_acting_kill.py", "test_acting_master.py", "test_any_accidents.py", "test_any_requests.py",
        "test_client_failover.py", "test_connection_limits.py", "test_creation_rate.py", "test_damaged_store.py",
        "test_fair_share.py", "test_fastjson.py", "test_fuzz.py", "test_hostile_headers.py", "test_hostile_peers.py",
        "test_header.py", "test_level_mark.py", "test_pop_waiting.py", "test_promotion.py", "test_registration.py",
        "test_timer_accidents.py", "test_timer_damage.py", "test_transaction_accidents.py",
    }
)  # fmt: skip
"""Test files without a JVM, Go and Spark that take more than some seconds; `make test-quick` leaves them out."""


SPARK = "one Spark session"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, and group them for `--dist loadgroup`: by file, but all tests in a Spark session together.

    A session takes many seconds of both cores to start and to warm up, so one test process has it.
    """
    rank = {name: number for number, name in enumerate(LONGEST_FILES)}

    def is_in_session(item: pytest.Item) -> bool:
        return "spark" in getattr(item, "fixturenames", ())

    for item in items:
        if item.path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group(SPARK if is_in_session(item) else item.path.stem))
    items.sort(key=lambda item: (not is_in_session(item), rank.get(item.path.name, len(rank))))
