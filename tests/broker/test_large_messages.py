"""Messages above 16 MiB, the limit of a frame in Apache's default: here the limit follows maxMessageSize."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.broker.config import BrokerConfig, check
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.runtime.lifecycle import StartError
from pocketmq.spark_analytics.direct.scan import Scan
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.file_disk import FileDisk
from tests.broker.running import running_broker, running_namesrv, until
from tests.broker.test_replication import end_of

SIZE = 24 << 20
LARGE: dict[str, Any] = {"max_message_size": SIZE, "mapped_file_size_commit_log": 64 << 20}


async def test_message_above_16_mib_is_sent_replicated_pulled_and_read_again_after_a_restart(tmp_path: Path) -> None:
    body = random.Random(5).randbytes(SIZE)
    roots = [{"store_path_root_dir": str(tmp_path / name), **LARGE} for name in "ab"]
    async with running_namesrv() as ns:
        address = f"127.0.0.1:{ns.port}"
        async with running_broker(ns, disk=FileDisk(), store=roots[0]) as master:
            slave_store = roots[1] | {"broker_role": "SLAVE"}
            async with running_broker(ns, disk=FileDisk(), store=slave_store, broker_id=1) as slave:
                async with Producer(address, message_size_max=SIZE) as producer:
                    await producer.create_topic("T", 1)
                    await producer.send(Message("T", body))
                    await producer.send(Message("T", b"after"))
                await until(lambda: end_of(slave) == end_of(master))
        async with running_broker(ns, disk=FileDisk(), store=roots[0]), PullConsumer(address, "g") as consumer:
            (queue,) = await consumer.queues("T")
            got = [message.body for offset in (0, 1) for message in (await consumer.pull(queue, offset)).messages[:1]]
    assert got == [body, b"after"]
    for root in roots:
        command = [sys.executable, "-m", "pocketmq", "store", "verify", root["store_path_root_dir"]]
        done = subprocess.run(command, capture_output=True, text=True)
        assert "records  2 valid," in done.stdout, done.stdout + done.stderr
        read = pa.RecordBatchReader.from_stream(Scan({"path": root["store_path_root_dir"]}, ["body"])).read_all()
        assert read["body"].to_pylist() == [body, b"after"]


def test_message_that_no_connection_may_carry_is_refused_at_start() -> None:
    """Otherwise each send of such a message would end its connection."""
    size = 70 << 20
    with pytest.raises(StartError, match=f"maxMessageSize={size}: .* maxUnfinishedFrameBytes=67108864 does not allow"):
        check(BrokerConfig(), MessageStoreConfig(max_message_size=size))
    limits = {"max_unfinished_frame_bytes": 80 << 20, "max_unsent_bytes_per_connection": 80 << 20}
    check(BrokerConfig(**limits), MessageStoreConfig(max_message_size=size))
