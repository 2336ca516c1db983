"""Tables of topics, groups and consumer offsets: creation, persistence, and reading of Apache's own files."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.subscription_group import BUILT_IN_GROUPS, SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager, topic_name_problem
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.config_document import SEAL_KEY
from tests.golden import linear


def config(**values: Any) -> BrokerConfig:
    return BrokerConfig(broker_name="b", broker_cluster_name="c", **values)


def file(disk: MemoryDisk, name: str) -> ConfigFile:
    return ConfigFile(disk, f"/store/config/{name}.json")


def topics(disk: MemoryDisk | None = None, **values: Any) -> TopicConfigManager:
    manager = TopicConfigManager(config(**values), file(disk or MemoryDisk(), "topics"), VirtualClock())
    manager.load()
    return manager


def groups(disk: MemoryDisk | None = None, **values: Any) -> SubscriptionGroupManager:
    manager = SubscriptionGroupManager(config(**values), file(disk or MemoryDisk(), "subscriptionGroup"), VirtualClock())
    manager.load()
    return manager


def offsets(disk: MemoryDisk | None = None, **how: Any) -> ConsumerOffsetManager:
    manager = ConsumerOffsetManager(file(disk or MemoryDisk(), "consumerOffset"), VirtualClock(), **how)
    manager.load()
    return manager


# --- topics ---------------------------------------------------------------------------------------------------------


def test_built_in_topics() -> None:
    found = {(t.topic_name, t.read_queue_nums, t.write_queue_nums, t.perm) for t in topics().table.values()}
    assert found == {
        ("SELF_TEST_TOPIC", 1, 1, 6),
        ("TBW102", 8, 8, 7),
        ("BenchmarkTest", 1024, 1024, 6),
        ("c", 16, 16, 7),
        ("b", 1, 1, 7),
        ("OFFSET_MOVED_EVENT", 1, 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 18, 6),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, 1, 6),
        ("rmq_sys_wheel_timer", 1, 1, 6),
        ("c_REPLY_TOPIC", 1, 1, 6),
    }


def test_trace_topic_exists_if_enabled_and_is_a_system_topic() -> None:
    manager = topics(trace_topic_enable=True, msg_trace_topic_name="Traces")
    created = manager.get("Traces")
    assert created is not None and (created.read_queue_nums, created.write_queue_nums, created.perm) == (1, 1, 6)
    assert manager.is_system_topic("Traces") and not topics().is_system_topic("Traces")


@pytest.mark.parametrize(("wanted", "made"), [(4, 4), (100, 8), (-1, 0)])
def test_send_creates_a_topic_from_the_default_topic(wanted: int, made: int) -> None:
    manager, told = topics(), []
    manager.topic_changed.subscribe(told.append)
    created = manager.create_on_send("T", "TBW102", wanted, 1)
    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums, created.perm, created.topic_sys_flag) == (made, made, 6, 1)
    assert manager.get("T") is created and told == ["T"]
    assert manager.create_on_send("T", "TBW102", 1) is created and told == ["T"]


def test_send_creates_no_topic_if_not_allowed() -> None:
    disk = MemoryDisk()
    topics(disk).create_on_send("Other", "TBW102", 1)  # writes TBW102 with the inherit permission to the file
    manager = topics(disk, auto_create_topic_enable=False)
    assert manager.create_on_send("T", "TBW102", 4) is None
    assert topics().create_on_send("T", "OFFSET_MOVED_EVENT", 4) is None
    assert topics().create_on_send("T", "NoSuchTopic", 4) is None


def test_retry_topics_are_created_once() -> None:
    manager = topics()
    made = manager.create_on_send_back("%RETRY%g", 1)
    assert (made.read_queue_nums, made.perm) == (1, 6)
    assert manager.create_on_send_back("%RETRY%g", 5) is made


@pytest.mark.parametrize("name", ["a", "%RETRY%a", "A|b_c-9", "t" * 127])
def test_valid_topic_names(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "..", "ä", "a\n", "t" * 128])
def test_invalid_topic_names(name: str) -> None:
    assert topic_name_problem(name) is not None


def test_changes_are_persisted_and_advance_the_version() -> None:
    disk = MemoryDisk()
    manager = topics(disk)
    manager.update(TopicConfig("T", 2, 3))
    manager.update(TopicConfig("U", 1, 1))
    assert manager.delete("U") and not manager.delete("U")
    again = topics(disk)
    found = again.get("T")
    assert found is not None and (found.read_queue_nums, found.write_queue_nums) == (2, 3)
    assert again.get("U") is None
    assert again.data_version.counter == 3
    assert disk.exists("/store/config/topics.json.bak")


def test_unknown_fields_of_a_newer_broker_are_kept() -> None:
    disk = MemoryDisk()
    text = """{"dataVersion":{"counter":5,"stateVersion":2,"timestamp":7},"mappings":{1:2},"topicConfigTable":{
        "T":{"topicName":"T","readQueueNums":2,"attributes":{"message.type":"FIFO"},"fresh":[1]}}}"""
    disk.write_file("/store/config/topics.json", text.encode())
    manager = topics(disk)
    manager.update(TopicConfig("T", 4, 4))
    document = json.loads(disk.read_file("/store/config/topics.json"))
    assert document["mappings"] == {"1": 2}
    assert document["dataVersion"]["stateVersion"] == 2 and document["dataVersion"]["counter"] == 6
    assert document["topicConfigTable"]["T"]["attributes"] == {"message.type": "FIFO"}
    assert document["topicConfigTable"]["T"]["fresh"] == [1]
    assert document["topicConfigTable"]["T"]["readQueueNums"] == 4


def test_unreadable_row_does_not_affect_other_rows(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    disk.write_file("/store/config/topics.json", b'{"topicConfigTable":{"A":{"perm":"many"},"B":{"topicName":"B"},"C":3}}')
    manager = topics(disk)
    assert "A" not in manager.table and "C" not in manager.table and "B" in manager.table
    assert "'A'" in caplog.text


def test_damaged_table_is_not_read_as_empty() -> None:
    disk = MemoryDisk()
    disk.write_file("/store/config/topics.json", b'{"topicConfigTable":')
    with pytest.raises(StoreError):
        topics(disk)


def test_the_name_servers_order_config_marks_ordered_topics() -> None:
    manager = topics()
    manager.update(TopicConfig("T", 1, 1))
    manager.update_order({"T": "b:4", "elsewhere": "x:1"})
    assert [name for name, topic in manager.table.items() if topic.order] == ["T"]
    counter = manager.data_version.counter
    manager.update_order({"T": "b:4"})
    assert manager.data_version.counter == counter
    manager.update_order({})
    assert not manager.table["T"].order


# --- groups ---------------------------------------------------------------------------------------------------------


def test_groups_are_created_at_first_use() -> None:
    disk = MemoryDisk()
    manager = groups(disk)
    assert set(BUILT_IN_GROUPS) <= set(manager.table)
    assert manager.get("g") is None
    made = manager.find("g")
    assert made is not None and made.retry_max_times == 16
    assert groups(disk).get("g") == made


def test_groups_are_not_created_when_auto_creation_is_off() -> None:
    manager = groups(auto_create_subscription_group=False)
    assert manager.find("g") is None
    assert manager.find("CID_RMQ_SYS_x") is not None
    manager.update(SubscriptionGroupConfig("g", retry_max_times=3))
    assert manager.find("g") is not None
    assert manager.delete("g") and not manager.delete("g")


# --- consumer offsets -----------------------------------------------------------------------------------------------


def test_offsets_are_committed_and_reset() -> None:
    disk = MemoryDisk()
    manager = offsets(disk)
    assert manager.query("g", "T", 0) == -1
    manager.commit("g", "T", 0, 9)
    manager.commit("g", "T", 0, 4)
    manager.commit("g", "U", 1, 1)
    manager.commit("h", "T", 2, 2)
    assert (manager.query("g", "T", 0), manager.query("g", "T", 1)) == (4, -1)
    assert sorted(manager.topics_of("g")) == ["T", "U"] and sorted(manager.groups_of("T")) == ["g", "h"]
    manager.persist()
    again = offsets(disk)
    assert again.table == manager.table
    again.delete_group("g")
    assert again.topics_of("g") == [] and again.query("h", "T", 2) == 2


def test_offsets_are_written_only_after_new_commits() -> None:
    disk = MemoryDisk()
    manager = offsets(disk)
    path = "/store/config/consumerOffset.json"
    with ThreadPoolExecutor(1) as executor:
        manager.persist_in(executor)
    assert not disk.exists(path)
    manager.commit("g", "T", 0, 9)
    with ThreadPoolExecutor(1) as executor:
        manager.persist_in(executor)
        manager.commit("g", "T", 0, 10)  # comes after the snapshot
    assert json.loads(disk.read_file(path))["offsetTable"] == {"T@g": {"0": 9}}


@pytest.mark.parametrize("table", ["[[false,1]]", '[["T@g",{"0":5}]]', '"T@g"'])
def test_offset_table_of_wrong_type_is_refused(table: str) -> None:
    disk = MemoryDisk()
    disk.write_file("/store/config/consumerOffset.json", b'{"offsetTable":%s}' % table.encode())
    with pytest.raises(StoreError, match="does not have the structure of its table"):
        offsets(disk)


def test_lmq_groups_have_a_separate_table() -> None:
    disk = MemoryDisk()
    manager = ConsumerOffsetManager(file(disk, "lmqConsumerOffset"), VirtualClock(), with_lmq=True)
    manager.load()
    manager.commit("%LMQ%g", "%LMQ%x", 0, 7)
    manager.commit("g", "T", 1, 8)
    manager.persist()
    document = json.loads(disk.read_file("/store/config/lmqConsumerOffset.json"))
    assert document.pop(SEAL_KEY)
    assert document == {"lmqOffsetTable": {"%LMQ%x@%LMQ%g": 7}, "offsetTable": {"T@g": {"1": 8}}}
    again = ConsumerOffsetManager(file(disk, "lmqConsumerOffset"), VirtualClock(), with_lmq=True)
    again.load()
    assert (again.query("%LMQ%g", "%LMQ%x", 0), again.query("g", "T", 1)) == (7, 8)


@pytest.mark.parametrize("with_lmq", [True, False])
def test_lmq_topics_and_groups_need_no_table_row(with_lmq: bool) -> None:
    disk = MemoryDisk()
    topic_manager = TopicConfigManager(config(), file(disk, "topics"), VirtualClock(), with_lmq=with_lmq)
    group_manager = SubscriptionGroupManager(
        config(auto_create_subscription_group=False), file(disk, "subscriptionGroup"), VirtualClock(), with_lmq=with_lmq
    )
    found = topic_manager.get("%LMQ%x")
    assert (found is not None) is with_lmq and (found is None or found.read_queue_nums == 1)
    assert (group_manager.find("%LMQ%g") is not None) is with_lmq
    assert "%LMQ%x" not in topic_manager.table and "%LMQ%g" not in group_manager.table
    assert topic_manager.get("TBW102") is not None


@pytest.mark.parametrize("name", ["../../up", "a/b", "a\0b", "n" * 249, "é" * 125])
def test_names_invalid_as_folder_are_refused_for_groups_and_topics(name: str) -> None:
    disk = MemoryDisk()
    rows = {name: {"topicName": name}, "T": {"topicName": "T"}}
    disk.write_file("/store/config/topics.json", json.dumps({"topicConfigTable": rows}).encode())
    light_groups = SubscriptionGroupManager(config(), file(disk, "subscriptionGroup"), VirtualClock(), with_lmq=True)
    light_topics = TopicConfigManager(config(), file(disk, "topics"), VirtualClock(), with_lmq=True)
    light_topics.load()
    light_topics.update(TopicConfig("New"))
    assert (name in light_topics.table) is (len(name.encode()) <= 255 and "/" not in name and "\0" not in name)
    assert json.loads(disk.read_file("/store/config/topics.json"))["topicConfigTable"].keys() >= {name, "T", "New"}
    assert light_groups.find(name) is None and light_groups.find("%LMQ%" + name) is None
    assert light_topics.get("%LMQ%" + "l" * 9 + name) is None
    with pytest.raises(ValueError, match="cannot be the name of a folder|at most 255"):
        light_topics.create_on_send_back("%RETRY%" + name, 1)
    with pytest.raises(ValueError, match="cannot be the name of a folder|at most 255"):
        light_groups.update(SubscriptionGroupConfig(name))
    assert light_groups.find("%LMQ%plain") is not None and light_groups.find("n" * 248) is not None


def test_unknown_fields_are_deleted_with_their_topic() -> None:
    disk = MemoryDisk()
    disk.write_file("/store/config/topics.json", b'{"topicConfigTable":{"T":{"topicName":"T","theirs":1}}}')
    manager = topics(disk)
    manager.delete("T")
    manager.update(TopicConfig("T"))
    assert "theirs" not in json.loads(disk.read_file("/store/config/topics.json"))["topicConfigTable"]["T"]


# --- Apache's files -------------------------------------------------------------------------------------------------


def test_files_written_by_apache_are_read(tmp_path: Path) -> None:
    disk = MemoryDisk()
    disk.write_file(
        "/store/config/topics.json",
        b'{\n\t"dataVersion":{\n\t\t"counter":23,\n\t\t"timestamp":1795231604667\n\t},\n\t"topicConfigTable":{\n\t\t"GoldenOrder":{'
        b'\n\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":4,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t'
        b'"topicName":"GoldenOrder",\n\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":4\n\t\t}\n\t}\n}',
    )
    disk.write_file(
        "/store/config/consumerOffset.json",
        b'{\n\t"offsetTable":{\n\t\t"GoldenNormal@GoldenPartGroup":{0:111,1:127,2:227,3:228\n\t\t},\n\t\t'
        b'"%RETRY%GoldenPartGroup@GoldenPartGroup":{0:0\n\t\t}\n\t}\n}',
    )
    read = topics(disk)
    assert read.table["GoldenOrder"].write_queue_nums == 4
    assert read.data_version.counter == 23
    assert offsets(disk).queues("GoldenPartGroup", "GoldenNormal") == {0: 111, 1: 127, 2: 227, 3: 228}


def test_rows_that_wait_for_the_log_are_written_in_their_snapshot_state() -> None:
    disk = MemoryDisk()
    end = flushed = 100
    manager = offsets(disk, log_end=lambda: end, flushed_offset=lambda: flushed)
    path = "/store/config/consumerOffset.json"
    manager.commit("g", "T", 0, 1)
    manager.commit_when_synced("popper", "T", 0, 1)
    flushed = 0
    with ThreadPoolExecutor(1) as executor:
        manager.persist_in(executor)
        manager.commit_when_synced("popper", "T", 0, 2)
        manager.commit("g", "T", 0, 2)
        assert not disk.exists(path), "the log is not synced"
        flushed = 100
        manager.persist_in(executor)
    assert json.loads(disk.read_file(path))["offsetTable"] == {"T@g": {"0": 2}, "T@popper": {"0": 1}}
    manager.persist()
    assert json.loads(disk.read_file(path))["offsetTable"] == {"T@g": {"0": 2}, "T@popper": {"0": 2}}


def test_pending_snapshot_is_included_in_the_next_write() -> None:
    disk = MemoryDisk()
    flushed = 100
    manager = offsets(disk, log_end=lambda: 100, flushed_offset=lambda: flushed)
    manager.commit_when_synced("popper", "T", 0, 1)
    manager.commit("g", "T", 0, 1)
    flushed = 0
    with ThreadPoolExecutor(1) as executor:
        manager.persist_in(executor)
    manager.commit("h", "T", 0, 1)
    flushed = 100
    manager.persist()
    assert offsets(disk).table == {"T@popper": {0: 1}, "T@g": {0: 1}, "T@h": {0: 1}}


def test_commit_cost_is_independent_of_the_number_of_other_groups() -> None:
    def cpu_s(count: int) -> float:
        manager = offsets()
        for n in range(count):
            manager.commit(f"g{n}", "T", 0, 1)
        manager.persist()

        def commit_often() -> None:
            for n in range(200):
                manager.commit("g0", "T", 0, n)
                manager.snapshot()

        return linear.cpu_s(commit_often)

    cpu_s(100)
    assert cpu_s(40_000) < 10 * cpu_s(1_000) + 0.05
