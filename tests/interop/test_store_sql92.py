"""SQL92 subscriptions in a store used by different brokers in turn: consumerFilter.json, and the bitmaps in
consumequeue_ext by which a broker skips records that no subscription of a group selects."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.store.format.layout import CONSUME_QUEUE_EXT_FIXED_STRUCT
from tests.interop.servers import WITHOUT_TIMERS, Apache, Cluster, Pocketmq
from tests.interop.wire import Connection
from tests.support.amount import cases

TOPIC, GROUP, COUNT = "Sql-topic", "Sql-group", 40
EXPRESSION = "number > 10 AND kind = 'even'"
BITS = 112


@pytest.fixture
def cluster(apache: Apache, tmp_path: Path) -> Iterator[Cluster]:
    """PocketMQ's name server; the fixture `apache` skips the test if there is no Java."""
    made = Cluster(
        tmp_path,
        Pocketmq(),
        **WITHOUT_TIMERS,
        enablePropertyFilter="true",
        enableConsumeQueueExt="true",
        enableCalcFilterBitMap="true",
    )
    yield made
    made.close()


def wanted(life: int) -> list[bytes]:
    return [b"%d %d" % (earlier, number) for earlier in range(life + 1) for number in range(12, COUNT, 2)]


def bitmaps(store: Path) -> list[int]:
    """Return the bitmaps of all units of the queue, as numbers."""
    data = b"".join(path.read_bytes() for path in sorted((store / "consumequeue_ext" / TOPIC / "0").iterdir()))
    found, position = [], 0
    while position < len(data) and int.from_bytes(data[position : position + 2], "big"):
        size = CONSUME_QUEUE_EXT_FIXED_STRUCT.unpack_from(data, position)[0]
        found.append(int.from_bytes(data[position + CONSUME_QUEUE_EXT_FIXED_STRUCT.size : position + size], "little"))
        position += size
    return found


def subscription(store: Path) -> dict[str, object]:
    document = json.loads((store / "config" / "consumerFilter.json").read_text())
    found: dict[str, object] = document["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
    return found


@pytest.mark.parametrize(("version", "ours_first"), cases([("5.5.0", False)], [("4.9.4", True), ("5.5.0", False)]))
def test_sql92_subscriptions_are_kept_when_the_broker_changes(cluster: Cluster, version: str, ours_first: bool) -> None:
    """The subscription stored by the first broker is kept. Each broker writes the same bits as the others would, and serves
    all messages.

    Units rebuilt by PocketMQ's recovery, such as the last ones of another broker, have no bitmap.
    """
    ours, theirs = Pocketmq(), Apache(version)
    born = set()
    for life, broker in enumerate((ours, theirs, ours) if ours_first else (theirs, ours, theirs)):
        cluster.start_broker(broker)
        with Connection(cluster.broker_address) as connection:
            if life == 0:
                connection.create_topic(TOPIC, 1)
            connection.subscribe(GROUP, TOPIC, EXPRESSION, version=7)
            for number in range(COUNT):
                kind = "odd" if number % 2 else "even"
                connection.send(TOPIC, 0, b"%d %d" % (life, number), {"number": str(number), "kind": kind})
            connection.wait_for_max_offset(TOPIC, 0, (life + 1) * COUNT)
            found = connection.read_queue_by_subscription(GROUP, TOPIC, 0, version=7)
            assert [record.body for record in found] == wanted(life), broker.name
        cluster.stop_broker()
        told = subscription(cluster.store)
        born.add(told["bornTime"])
        assert (told["expression"], told["expressionType"], told["clientVersion"]) == (EXPRESSION, "SQL92", 7)
        assert told["bloomFilterData"]["bitNum"] == BITS  # type: ignore[index]
        mask = sum(1 << position for position in set(told["bloomFilterData"]["bitPos"]))  # type: ignore[index]
        expected = [mask if number > 10 and number % 2 == 0 else 0 for number in range(COUNT)]
        assert bitmaps(cluster.store)[life * COUNT :] == expected, broker.name
    assert len(born) == 1
