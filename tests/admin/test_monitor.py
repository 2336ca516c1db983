"""startMonitoring: messages that a connected group has not consumed, one round with --json."""

from tests.admin.conftest import Mqadmin
from tests.interop.wire import Connection


def test_undone_messages_of_a_connected_group(mqadmin: Mqadmin, broker: str) -> None:
    assert mqadmin("startMonitoring", "--json").json == []
    with Connection(broker) as consumer:
        consumer.create_topic("Watched", 2)
        consumer.subscribe("Watchers", "Watched")
        for queue_id, count in ((0, 3), (1, 1)):
            for _ in range(count):
                consumer.send("Watched", queue_id, b"message")
            consumer.commit("Watchers", "Watched", queue_id, 1)
        reports = mqadmin("startMonitoring", "--json").json
    (report,) = (report for report in reports if report["topic"] == "Watched")
    assert report["consumerGroup"] == "Watchers"
    assert (report["undoneMsgsTotal"], report["undoneMsgsSingleMQ"]) == (2, 2)
    assert report["undoneMsgsDelayTimeMills"] >= 0
