"""The audit is silent for healthy stores: new ones, slaves, promoted ones, those with deleted topics or batch queues."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.store.disk.file_disk import FileDisk
from tests.broker.running import ask, connected, create_topic, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE, end_of, send
from tests.spark_analytics.spark_logs import LogBuilder, write_queues
from tests.spark_analytics.test_spark_audit import Command, findings

pytestmark = pytest.mark.spark

LEVEL_1, TIMER = "DELAY\x011\x02", "TIMER_DELAY_SEC\x013600\x02"
BROKERS = ("new", "deleted", "created again", "created again, one queue used", "slave", "promoted")
DELETED = BROKERS[1:4]
OTHERS = ("apache 4.9.4", "apache 4.9.4, killed", "apache 5", "apache 5, killed", "batch queues", "never dispatched")


async def delete(client: RemotingClient, broker: Broker, topic: str) -> None:
    await ask(client, broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))


async def made_by_brokers(folder: Path) -> dict[str, Path]:
    """Run brokers whose stores end in each state; return these stores."""
    stores = {name: folder / name for name in (*BROKERS, "master")}

    def store(name: str, **more: Any) -> dict[str, Any]:
        return {"disk": FileDisk(), "store": {"store_path_root_dir": str(stores[name]), **more}}

    async with running_namesrv() as ns, connected() as client:
        async with running_broker(**store("new")):
            pass
        for name in DELETED:
            async with running_broker(**store(name)) as broker:
                for queue_id in (0, 1, 2):
                    await send(client, broker, 20, topic="Gone", queue_id=queue_id)
                await send(client, broker, 5, topic="Kept")
                await delete(client, broker, "Gone")
                await send(client, broker, 5, topic="Kept")
                if name != "deleted":
                    await create_topic(client, broker, "Gone")
                if name == "created again, one queue used":
                    await send(client, broker, 7, topic="Gone", queue_id=1)
        async with running_broker(ns, **store("master")) as master:  # noqa: SIM117  # the order of stops
            async with running_broker(ns, broker_id=1, **store("slave", **SLAVE)) as slave:
                await send(client, master, 20, topic="Kept")
                await send(client, master, 2, properties=LEVEL_1)
                await send(client, master, 2, properties=TIMER)
                await send(client, master, 9, topic="Gone")
                await until(lambda: end_of(slave) == end_of(master) and "Gone" in slave.services.topics.table)
                await delete(client, master, "Gone")
                await send(client, master, 2, topic="Kept")
                await until(lambda: end_of(slave) == end_of(master))
        shutil.copytree(stores["slave"], stores["promoted"])
        async with running_broker(**store("promoted")) as promoted:
            await send(client, promoted, 5, topic="Kept")
    return stores


def batch_queues(folder: Path) -> Path:
    """Create a store of a 5.x topic with batch queues: a batch is one record, with the queue offset of its first message."""
    log = LogBuilder(20_000)
    for number in range(40):
        log.append(topic="Kept")
        count = number % 4 + 1
        properties = {"INNER_NUM": str(count)} if count > 1 else {}
        log.append(topic="Batch", sys_flag=0x80 if count > 1 else 0, properties=properties)
        log.queue_offsets["Batch", 3] += count - 1
    store = write_queues(log.write(folder), without=set(log.physical_offsets[1::2]))
    (store / "batchconsumequeue" / "Batch" / "3").mkdir(parents=True)
    (store / "config").mkdir()
    topics = {"Kept": {}, "Batch": {"attributes": {"queue.type": "BatchCQ"}}}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    return store


def never_dispatched(folder: Path) -> Path:
    """Create a store with records of prepared and rolled back transactions in a user's topic."""
    log = LogBuilder(20_000)
    for number in range(40):
        log.append(topic="T", sys_flag=(0, 4, 0, 12)[number % 4])
        log.queue_offsets["T", 3] -= number % 2
    return write_queues(log.write(folder), without=set(log.physical_offsets[1::2]))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, golden_stores: dict[str, Path]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("healthy")
    golden = {
        "apache 4.9.4": "v4_clean",
        "apache 4.9.4, killed": "v4_kill9",
        "apache 5": "v5_clean",
        "apache 5, killed": "v5_kill9",
    }
    return {
        **asyncio.run(made_by_brokers(folder)),
        **{name: golden_stores[store] for name, store in golden.items()},
        "batch queues": batch_queues(folder / "batch queues"),
        "never dispatched": never_dispatched(folder / "never dispatched"),
    }


@pytest.mark.parametrize("name", [*BROKERS, *OTHERS])
def test_audit_is_silent(command: Command, healthy: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("audit", healthy[name], "--index", "--json", "--engine", "direct") == 0
    assert [row for row in findings(capsys) if row["severity"] != "note" or "killed" not in name] == []
    assert command("audit", healthy[name], "--engine", "direct") == 0
    told = "60 of topics that were deleted, or deleted and created again"
    assert (told in capsys.readouterr().out) == (name in DELETED)


def test_audit_is_silent_with_spark(command: Command, healthy: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name in (*BROKERS, *OTHERS) if "killed" not in name]
    assert command("audit", *(healthy[name] for name in names), "--json", "--engine", "spark") == 0
    assert findings(capsys) == []


@pytest.mark.parametrize("lost", ["Kept/0", "Gone"])
def test_audit_finds_queues_that_are_lost(
    command: Command, healthy: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    """A lost queue or folder is not taken for a topic that was deleted, unless it is that of a whole topic."""
    store = shutil.copytree(healthy["promoted"], tmp_path / "store")
    folder = store / "consumequeue" / lost
    if lost == "Kept/0":
        units = min(folder.iterdir())
        units.write_bytes(units.read_bytes()[: 5 * 20].ljust(units.stat().st_size, b"\0"))
    else:
        shutil.rmtree(folder)
    status = command("audit", store, "--json", "--engine", "direct")
    shown = json.loads(capsys.readouterr().out)
    if lost == "Gone":
        assert (status, shown["findings"]) == (0, [])
    else:
        assert status == 1 and {row["kind"] for row in shown["findings"]} == {"record without unit"}
