"""Broadcasting consumers: each gets all messages, and keeps its offsets in a local file."""

from pathlib import Path

from pocketmq import ConsumerOptions, Message, MessageExt, Producer, PushConsumer
from pocketmq.remoting import fastjson
from tests.client.live_cluster import Cluster, until


def broadcast(cluster: Cluster, folder: Path, name: str, got: list[bytes]) -> PushConsumer:
    options = ConsumerOptions(offsets_folder=folder, instance_name=name)
    made = PushConsumer(cluster.namesrv, "g", "first", broadcast=True, options=options)
    made.subscribe("T", lambda message: got.append(message.body))
    return made


async def send(cluster: Cluster, *bodies: bytes) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        for body in bodies:
            await producer.send(Message("T", body))


async def test_each_consumer_gets_all_messages_and_continues_at_its_local_offset(cluster: Cluster, tmp_path: Path) -> None:
    await send(cluster, b"0", b"1")
    first, second, again = list[bytes](), list[bytes](), list[bytes]()
    async with broadcast(cluster, tmp_path, "one", first) as one, broadcast(cluster, tmp_path, "two", second):
        await until(lambda: first == second == [b"0", b"1"])
    path = tmp_path / one.instance.client_id / "g" / "offsets.json"
    assert one.instance.client_id.endswith("@one")
    assert fastjson.loads(path.read_bytes()) == {"offsetTable": {'{"brokerName":"broker-a","queueId":0,"topic":"T"}': 2}}
    await send(cluster, b"2")
    async with broadcast(cluster, tmp_path, "one", again):
        await until(lambda: again == [b"2"])
    assert cluster.broker.services.offsets.query("g", "T", 0) == -1, "nothing is stored at the broker"


async def test_file_of_javas_client_is_read(cluster: Cluster, tmp_path: Path) -> None:
    await send(cluster, b"0", b"1", b"2")
    got: list[bytes] = []
    consuming = broadcast(cluster, tmp_path, "java", got)
    folder = tmp_path / consuming.instance.client_id / "g"
    folder.mkdir(parents=True)
    folder.joinpath("offsets.json").write_text("damaged")
    folder.joinpath("offsets.json.bak").write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"broker-a",\n\t\t"queueId":0,\n\t\t"topic":"T"\n\t}:2\n\t}\n}'
    )
    async with consuming:
        await until(lambda: got == [b"2"])


async def test_failed_message_is_not_delivered_again(cluster: Cluster, tmp_path: Path) -> None:
    await send(cluster, b"0", b"1")
    got: list[bytes] = []

    def listen(message: MessageExt) -> None:
        got.append(message.body)
        raise ValueError("no")

    consuming = PushConsumer(cluster.namesrv, "g", "first", broadcast=True, options=ConsumerOptions(offsets_folder=tmp_path))
    consuming.subscribe("T", listen)
    async with consuming:
        await until(lambda: got == [b"0", b"1"])
        assert consuming.instance.client_id.endswith("@DEFAULT")
