"""Configuration of all tests: Hypothesis examples without a deadline, import and order of the files, the mark `slow`."""

import contextlib
import functools
import gc
import importlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.support.amount import IS_LONG, cases

settings.register_profile("pocketmq", deadline=None, max_examples=cases(15, 100))
settings.load_profile("pocketmq")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Let the processes that tests start import numpy without threads for matrices, for half the CPU."""

signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""Restore the default also for servers, which inherit it: a SIGHUP ignored at their start (`nohup`) would stay ignored."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without the garbage collector, which would look through all that is imported and made again and again.

    What is there afterwards stays, so that the collector need not look at it later either.
    """
    gc.disable()
    try:
        import_in_turn(session)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def import_in_turn(session: pytest.Session) -> None:
    """Let each worker process begin its imports at another test file.

    In a new checkout each of them then rewrites the assertions of a part of the files, which takes longer than all else at
    their start, and loads what the others have written.
    """
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) is None:
        return
    config = session.config
    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    files = sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))})
    first = len(files) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for file in files[first:] + files[:first]:
        # An import that fails, or skips the file, does so again when the file is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(Path(__file__).parents[1]).with_suffix("").parts))


LONGEST_FILES = (
    "test_store_exchange.py",
    "test_acting_master.py",
    "test_grpc_python.py",
    "test_grpc_node.py",
    "test_grpc_java.py",
    "test_grpc_go.py",
    "test_kit_junit5.py",
    "test_client_asks.py",
    "test_replication.py",
    "test_client_failover.py",
    "test_mqadmin_matrix.py",
    "test_client_retry.py",
    "test_fuzz_targets.py",
    "test_process_cluster.py",
    "test_set_checker.py",
    "test_spark_stream_kill.py",
    "test_store_sql92.py",
    "test_pop_exchange.py",
    "test_store_ext.py",
    "test_acting_orderly.py",
    "test_transaction_exchange.py",
    "test_fuzz.py",
    "test_jvm_cluster.py",
    "test_spark_cluster.py",
    "test_simulator.py",
    "test_client_tls.py",
    "test_client_acl.py",
    "test_mistakes.py",
    "test_kill_minus_9.py",
    "test_timer_exchange.py",
    "test_client_timer.py",
    "test_disk_faults.py",
    "test_cluster_tools.py",
    "test_client_pop.py",
    "test_kill_timers.py",
    "test_client_sends.py",
    "test_fair_share.py",
    "test_client_restart.py",
    "test_shop.py",
    "test_pocketmq_command_line.py",
    "test_client_push.py",
    "test_rocketmq_examples.py",
)
"""The slowest test files, slowest first. They run first: one started last would leave the other worker processes idle."""

SLOW_FILES = frozenset(
    {
        "test_acting_kill.py", "test_acting_master.py", "test_any_accidents.py", "test_any_requests.py",
        "test_broker_golden_replay.py", "test_client_failover.py", "test_config_updates.py", "test_connection_limits.py",
        "test_consumer_trace.py", "test_creation_rate.py", "test_damaged_store.py", "test_fair_share.py",
        "test_fastjson.py", "test_fuzz.py", "test_header.py", "test_healthy_stores.py", "test_hostile_headers.py",
        "test_hostile_peers.py", "test_large_messages.py", "test_large_tables.py", "test_level_mark.py",
        "test_pop_waiting.py", "test_promotion.py", "test_registration.py", "test_timer_accidents.py",
        "test_timer_damage.py", "test_transaction_accidents.py", "test_work_budget.py",
    }
)  # fmt: skip
"""Test files that need no JVM, Go or Spark but take more than a few seconds; `make test-quick` skips them."""


SPARK_ANALYTICS = "tests/spark_analytics/"
NO_SESSION = ("bodies", "broker_names", "cluster", "connect", "log_end", "log_reading", "lost_bytes",
              "newcomer", "options", "page", "queue_pruning", "session", "stream_backfill", "stream_kill",
              "worker_daemon")  # fmt: skip
"""Files of `SPARK_ANALYTICS` whose tests do not use the shared Spark session: `test_spark_X.py`, `test_jvm_X.py`."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not IS_LONG and (later := [item for item in items if item.get_closest_marker("long")]):
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    rank = {name: number for number, name in enumerate(LONGEST_FILES)}
    for item in items:
        if item.path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: (not is_in_session(item.nodeid), rank.get(item.path.name, len(rank))))


def is_in_session(nodeid: str) -> bool:
    """Return whether a test is in a file that uses the shared Spark session."""
    return uses_session(nodeid.partition("::")[0])


@functools.cache
def uses_session(path: str) -> bool:
    """Return whether a file's tests use the shared Spark session."""
    name = re.sub(r"^test_(spark|jvm)_", "", Path(path).stem)
    return path.startswith(SPARK_ANALYTICS) and name not in NO_SESSION


INTEROP = "tests/interop/"
SHARED_SERVERS = ("client_asks", "client_cpp", "client_delay", "client_pop", "client_pull", "client_push",
                  "client_rebalance", "client_request_reply", "client_retry", "client_sends", "client_sql92", "mqadmin",
                  "mqadmin_5_5_0", "our_consumer_asked")  # fmt: skip
"""Files of `INTEROP` most tests of which use the shared servers and the clients connected to them: `test_X.py`."""


class Scheduling(LoadFileScheduling):
    """Assigns each file to one worker process; files that share a Spark session, or servers and clients, to the same one.

    Starting and warming up a Spark session or a Java client takes much CPU time.
    """

    def _split_scope(self, nodeid: str) -> str:
        if is_in_session(nodeid):
            return SPARK_ANALYTICS
        path = nodeid.partition("::")[0]
        if path.startswith(INTEROP) and path.removeprefix(f"{INTEROP}test_").removesuffix(".py") in SHARED_SERVERS:
            return INTEROP
        return super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
