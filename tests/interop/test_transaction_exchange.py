"""Transactions left open by one broker are ended by the other: Apache's 4.9.4 and 5.5.0, and PocketMQ, in both directions.

The first broker ends some transactions, finds no producer to ask about the others, and stores those again for the check.
Then it is stopped cleanly or killed (kill -9). The second broker checks them and delivers the committed ones. Transactions
ended before are neither checked nor delivered again after a clean stop; a kill may lose some seconds of a broker's progress.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.patience import wait
from tests.interop.servers import WITHOUT_TIMERS, Apache, Cluster, Flavour, Pocketmq
from tests.interop.toolchain import jars
from tests.interop.wire import CHECK_TRANSACTION_STATE, Connection, Record, record
from tests.patience import PATIENCE_S
from tests.support.amount import cases

TOPIC, GROUP = "Transaction-exchange", "exchange-pg"
HALF, OP, PROGRESS_GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK, PREPARED = 8, 12, 4
CASES = [
    ("4.9.4", "pocketmq", "stop"),
    ("pocketmq", "5.5.0", "kill"),
    *cases([], [("pocketmq", "4.9.4", "stop"), ("5.5.0", "pocketmq", "kill")]),
]
INTERVAL_MS = 1000
CONFIG: dict[str, object] = {
    "transactionTimeOut": INTERVAL_MS,
    "transactionCheckInterval": INTERVAL_MS,
    "diskMaxUsedSpaceRatio": 95,
}
ENDED = {"committed": COMMIT, "rolled back": ROLLBACK}
OPEN = {"open, committed": COMMIT, "open, rolled back": ROLLBACK, "immune, committed": COMMIT}
DELIVERED = {"committed", "open, committed", "immune, committed"}
IMMUNITY_S = 8


def run(folder: Path, first: str, second: str, ending: str) -> None:
    """Run the exchange. Raises AssertionError for a wrong result."""
    cluster = Cluster(folder, Pocketmq(), **CONFIG, **WITHOUT_TIMERS)
    try:
        cluster.start_broker(_flavour(first))
        with Connection(cluster.broker_address) as connection:
            _first_life(connection)
        cluster.stop_broker() if ending == "stop" else cluster.kill_broker()
        cluster.start_broker(_flavour(second))
        with Connection(cluster.broker_address) as connection:
            _second_life(connection, may_repeat=ending == "kill")
    finally:
        cluster.close()


def _flavour(name: str) -> Flavour:
    return Pocketmq() if name == "pocketmq" else Apache(name)


def _first_life(connection: Connection) -> None:
    connection.create_topic(TOPIC, 1)
    for body in (*OPEN, *ENDED):
        names = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"U-{body}"}
        if body.startswith("immune"):
            names["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(IMMUNITY_S)
        connection.send(TOPIC, 0, body.encode(), names, PREPARED)
    for body, ending in ENDED.items():
        wait(lambda body=body: bool(connection.query(HALF, f"U-{body}")), "the index", PATIENCE_S)
        connection.end_transaction(GROUP, connection.query(HALF, f"U-{body}")[0], ending)
    wait(lambda: connection.max_offset(OP, 0) > 0, "an op message", PATIENCE_S)  # 5.5.0 delays them by 3 s
    halves = len(OPEN) + len(ENDED)
    wait(lambda: connection.max_offset(HALF, 0) >= halves + len(OPEN), "open ones to be stored again", PATIENCE_S)


def _second_life(connection: Connection, *, may_repeat: bool) -> None:
    # Apache's broker names no first offset in its copies. If it is stopped between storing a copy and noting its progress,
    # the next broker finds two open half messages, and asks about both.
    open_count = connection.max_offset(HALF, 0) - connection.consumer_offset(PROGRESS_GROUP, HALF, 0)
    may_repeat = may_repeat or open_count > len(OPEN)
    connection.produce(GROUP)
    asked: Counter[str] = Counter()

    def is_done() -> bool:
        for question in _questions(connection):
            body = question.body.decode()
            asked[body] += 1
            connection.end_transaction(GROUP, question, OPEN.get(body) or ENDED[body], asked=True)
        delivered = {message.body.decode() for message in connection.read_queue(TOPIC, 0)}
        return delivered >= DELIVERED and asked.keys() >= OPEN.keys()

    wait(is_done, "open transactions to be ended", PATIENCE_S)
    end = connection.max_offset(HALF, 0)
    wait(
        lambda: is_done() and connection.consumer_offset(PROGRESS_GROUP, HALF, 0) >= end,
        "the half queue to be finished",
        PATIENCE_S,
    )
    bodies = Counter(message.body.decode() for message in connection.read_queue(TOPIC, 0))
    assert bodies.keys() == DELIVERED
    if not may_repeat:
        assert (bodies, asked.keys()) == (Counter(DELIVERED), OPEN.keys())


def _questions(connection: Connection) -> list[Record]:
    connection.max_offset(TOPIC, 0)  # requests received so far are read together with the answer
    found = [record(notice.body) for notice in connection.notices if notice.code == CHECK_TRANSACTION_STATE]
    connection.notices.clear()
    return found


@pytest.fixture(scope="module")
def runs(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str, str], "Future[None]"]]:
    """Two runs at a time: they mostly wait, but each starts a JVM. The fixture `apache` skips if there is no Java."""
    jars("5.5.0-broker")
    with ThreadPoolExecutor(2) as threads:
        yield {case: threads.submit(run, tmp_path_factory.mktemp("-".join(case)), *case) for case in CASES}


@pytest.mark.parametrize(("first", "second", "ending"), CASES)
def test_open_transactions_are_ended_by_the_other_broker(
    first: str, second: str, ending: str, runs: dict[tuple[str, str, str], "Future[None]"]
) -> None:
    runs[first, second, ending].result()
