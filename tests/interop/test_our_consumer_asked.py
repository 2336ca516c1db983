"""Apache's mqadmin and a consumer of our Python client: running info, a message consumed directly, a reset."""

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import MessageExt
from tests.interop.conftest import need_java
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import BROKER_NAME, Cluster
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S
from tests.support.amount import cases

TOPIC, GROUP = "Asks-ours", "Asks-ours-g"
BODIES = ["m0", "m1", "m2"]


class OurConsumer:
    """A push consumer in a thread of its own, with an event loop as in a user's program."""

    def __init__(self, namesrv_address: str) -> None:
        self.got: list[str] = []
        self.client_id = self.first_id = ""
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._namesrv_address = namesrv_address
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    def __enter__(self) -> "OurConsumer":
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the consumer does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        consumer = PushConsumer(self._namesrv_address, GROUP, start="first")
        consumer.subscribe(TOPIC, self._take)
        self.client_id = consumer.instance.client_id
        async with consumer:
            self._ready.set()
            await self._end.wait()

    def _take(self, message: MessageExt) -> None:
        with self._changed:
            self.first_id = self.first_id or message.offset_msg_id
            self.got.append(message.body.decode())
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.got) >= count, PATIENCE_S), f"got only {self.got}"
            return list(self.got)


@pytest.fixture(scope="module")
def ours(cluster: Cluster) -> Iterator[OurConsumer]:
    with Connection(cluster.broker_address) as connection:
        connection.create_topic(TOPIC, 1)
        for body in BODIES:
            connection.send(TOPIC, 0, body.encode(), {})
    with OurConsumer(cluster.namesrv_address) as running:
        running.wait_for(len(BODIES))
        yield running


@pytest.fixture(scope="module", params=cases(["5.5.0"], ["4.9.4", "5.5.0"]))
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    need_java()
    shell = Mqadmin(tmp_path_factory.mktemp("mqadmin"), request.param)
    yield shell
    shell.close()


def test_consumer_status_of_our_consumer(ours: OurConsumer, tool: Mqadmin, cluster: Cluster, tmp_path: Path) -> None:
    printed = tool.ask(cluster.namesrv_address, "consumerStatus", "-g", GROUP, "-i", ours.client_id, "-s")
    assert "Exception" not in printed, printed
    assert re.search(r"^PROP_CONSUME_TYPE +: CONSUME_PASSIVELY$", printed, re.MULTILINE), printed
    assert re.search(rf"Topic: {TOPIC} +ClassFilter: false +SubExpression: \*", printed), printed
    queue = rf"^{TOPIC} +{BROKER_NAME} +0 +ProcessQueueInfo \[commitOffset=\d+, .*cachedMsgCount=0, .*droped=false, "
    assert re.search(queue, printed, re.MULTILINE), printed
    assert re.search(rf"^{TOPIC} +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +0\.00 +0$", printed, re.MULTILINE), printed
    stacks = printed.partition("#Consumer jstack#")[2]
    assert "HeldQueues._fetch" in stacks, printed


def test_consumer_status_of_the_group(ours: OurConsumer, tool: Mqadmin, cluster: Cluster) -> None:
    printed = tool.ask(cluster.namesrv_address, "consumerStatus", "-g", GROUP)
    assert re.search(rf"^1 +{re.escape(ours.client_id)} +V4_9_4 ", printed, re.MULTILINE), printed
    assert "Same subscription in the same group of consumer" in printed
    assert "Rebalance OK" in printed, printed


def test_message_is_consumed_directly_by_our_consumer(ours: OurConsumer, tool: Mqadmin, cluster: Cluster) -> None:
    seen = len(ours.got)
    where = ("-i", ours.first_id, "-g", GROUP, "-d", ours.client_id)
    topic = ("-t", TOPIC) if tool.version == "5.5.0" else ()
    printed = tool.run(cluster.namesrv_address, "queryMsgById", *where, *topic)
    result = r"ConsumeMessageDirectlyResult \[order=false, autoCommit=true, consumeResult=CR_SUCCESS, remark=null, "
    assert re.search(result, printed), printed
    assert ours.wait_for(seen + 1)[seen:] == ["m0"]


def test_our_consumer_follows_a_reset(ours: OurConsumer, tool: Mqadmin, cluster: Cluster) -> None:
    seen = len(ours.got)
    printed = tool.run(cluster.namesrv_address, "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
    assert re.search(rf"^{BROKER_NAME} +0 +0 *$", printed, re.MULTILINE), printed
    assert ours.wait_for(seen + len(BODIES))[seen:] == BODIES
