"""Delay levels through the real clients: never early, and with the message unchanged."""

from collections.abc import Callable

from tests.interop.driver import Driver
from tests.interop.drivers import with_cpp

LEVEL_MS = {1: 1000, 2: 5000}
LATE_MS_MAX = 10_000  # a limit for a machine with much load; `make bench` measures the real value


@with_cpp
def test_delay_levels_are_never_early(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    client.start_producer(named("p"))
    client.send(named("p"), topic, ["not delayed"])
    client.start_consumer(named("c"), named("g"), topic)
    client.wait_for(named("c"), 1)
    sent = {}
    for level in LEVEL_MS:
        for one in client.send(named("p"), topic, [f"{level}:{n}" for n in range(10)], delayLevel=level,
                               tags=["D"], keys=["delayed"]):  # fmt: skip
            assert one.status == "SEND_OK"
            sent[one.body] = (one, level)
    got = client.wait_for(named("c"), 21)[1:]
    late = {level: [0.0] * 0 for level in LEVEL_MS}
    for message in got:
        one, level = sent.pop(message.body or "")
        assert (message.topic, message.msg_id, message.tags, message.keys) == (
            topic, one.msg_id, "D", "delayed")  # fmt: skip
        assert (message.properties["DELAY"], message.properties["REAL_TOPIC"]) == (str(level), topic)
        # Apache reads its clock once a millisecond, so its "now" may be the one before the client's.
        late[level].append(message.arrived_at_ms - (one.sent_at_ms + LEVEL_MS[level]))
        assert late[level][-1] >= -1
        assert message.store_timestamp_ms >= one.sent_at_ms + LEVEL_MS[level] - 1
    print("\nlate:", {level: f"max {max(each)} ms" for level, each in late.items()})
    assert not sent and max(map(max, late.values())) <= LATE_MS_MAX
    client.shutdown(named("p"), named("c"))
