"""Limits of a server's answers: an answer of a few bytes cannot make a client allocate memory or work without end."""

import asyncio
import json
import zlib
from collections.abc import Iterator

import pytest

from pocketmq import Message, Producer, PullConsumer, PushConsumer, RemotingError
from pocketmq.cli.main import main as pocketmq
from pocketmq.client import message as client_message
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.message import decode_messages
from pocketmq.store.format.message import COMPRESSED_FLAG
from tests.admin.conftest import Mqadmin, alone  # noqa: F401
from tests.admin.test_odd_servers import OddServer, odd  # noqa: F401
from tests.patience import PATIENCE_S
from tests.spark_analytics.spark_logs import LogBuilder


def route(*queue_counts: int, brokers: int = 1) -> bytes:
    """Return a route whose broker names have the given numbers of queues."""
    names = [f"b{number}" for number in range(len(queue_counts))]
    queues = [
        {"brokerName": name, "perm": 6, "readQueueNums": count, "writeQueueNums": count}
        for name, count in zip(names, queue_counts, strict=True)
    ]
    addresses = {str(number): f"127.0.0.1:{number + 1}" for number in range(brokers)}
    data = [{"brokerName": name, "brokerAddrs": addresses} for name in names]
    return json.dumps({"brokerDatas": data, "queueDatas": queues}).encode()


@pytest.fixture
def namesrv(odd: OddServer) -> Iterator[OddServer]:  # noqa: F811
    odd.fields = {}
    yield odd


async def failures(namesrv: str) -> list[str]:
    """Return the errors of a producer and of both consumers."""
    said = []
    push = PushConsumer(namesrv, "g")
    push.subscribe("T", lambda message: None)
    async with Producer(namesrv, "p") as producer, PullConsumer(namesrv, "g") as pull:
        for step in (producer.send(Message("T", b"x")), pull.queues("T"), push.start()):
            with pytest.raises(RemotingError) as refusal:
                await step
            said.append(str(refusal.value))
    await push.close()
    return said


@pytest.mark.parametrize("counts", [(70_000,), (40_000, 40_000), (-300_000, 300_000)])
def test_a_route_with_too_many_queues(namesrv: OddServer, alone: Mqadmin, counts: tuple[int, ...]) -> None:  # noqa: F811
    namesrv.body = route(*counts)
    total = sum(count for count in counts if count > 0)
    limit = f"the route of topic 'T': {total} queues; QUEUES_MAX=65536 is the limit of a client"
    assert all(limit in said for said in asyncio.run(failures(namesrv.address)))
    for command in (("allocateMQ", "-i", "a"), ("printMsg",)):
        assert limit in alone(*command, "-t", "T", "-n", namesrv.address).err
    assert str(counts[-1]) in alone("topicRoute", "-t", "T", "-n", namesrv.address).out, "a diagnosis shows it"


def test_a_route_with_too_many_brokers(namesrv: OddServer) -> None:
    namesrv.body = route(4, brokers=10_001)
    limit = f"the routes of name server {namesrv.address}: 10001 brokers; BROKERS_MAX=10000 is the limit of a client"
    assert all(limit in said for said in asyncio.run(failures(namesrv.address)))


def test_a_route_that_cannot_be_read_names_the_server(namesrv: OddServer) -> None:
    namesrv.body = b'{"queueDatas":5}'
    said = asyncio.run(failures(namesrv.address))
    assert all(f"name server {namesrv.address}: the route of topic 'T' cannot be read" in one for one in said)


async def test_repeated_work_continues_after_an_answer_that_cannot_be_read() -> None:
    instance, tries = ClientInstance("127.0.0.1:1"), asyncio.Queue[None]()

    async def step() -> None:
        tries.put_nowait(None)
        raise ValueError("not a route")

    instance.every(0.001, step)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            await tries.get()
    await instance.close()


def test_decompressed_bodies_of_one_answer_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_message, "DECOMPRESSED_SIZE_MAX", 1000)
    monkeypatch.setattr(client_message, "DECOMPRESSED_TOTAL_MAX", 3000)
    log = LogBuilder(100_000)
    for size in (1001, 900, 900, 900, 10):
        log.append(zlib.compress(bytes(size)), sys_flag=COMPRESSED_FLAG)
    log.append(b"plain")
    messages = decode_messages(bytes(log.files[0][1][: log.position]), "b")
    assert [len(message.body) if message.problem is None else message.problem for message in messages] == [
        "its decompressed size exceeds 1000 bytes",
        900,
        900,
        "the decompressed bodies of one answer exceed DECOMPRESSED_TOTAL_MAX=3000 bytes",
        "the decompressed bodies of one answer exceed DECOMPRESSED_TOTAL_MAX=3000 bytes",
        5,
    ]


@pytest.mark.parametrize("action", ["show", "count"])
def test_pages_without_an_end(namesrv: OddServer, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    namesrv.fields = {"extFields": {"cursor": "7"}}
    brokers = {"b": {"brokerName": "b", "brokerAddrs": {"0": namesrv.address}}}
    namesrv.body = json.dumps({"brokerAddrTable": brokers, "messages": [], "hours": {}}).encode()
    with pytest.raises(SystemExit) as end:
        pocketmq(["delay", action, *(["U"] if action == "show" else []), "-n", namesrv.address])
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert said == f"pocketmq: error: {namesrv.address} answers with the cursor that it was asked to continue from, 7\n"
