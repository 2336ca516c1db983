"""A name server and a broker in the test's own event loop, on free ports, with a store in memory."""

from collections.abc import AsyncIterator

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.client.live_cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    namesrv = NameServer(NamesrvConfig(listen_port=0, kv_config_path=""))
    await namesrv.start()
    address = f"127.0.0.1:{namesrv.port}"
    config = BrokerConfig(namesrv_addr=address, broker_name="broker-a", listen_port=0)
    store = MessageStoreConfig(store_path_root_dir="/store", mapped_file_size_commit_log=4 << 20)
    broker = Broker(config, store, disk=MemoryDisk())
    await broker.start()
    try:
        yield Cluster(address, broker)
    finally:
        await broker.stop()
        await namesrv.stop()
