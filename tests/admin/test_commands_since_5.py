"""Commands of 5.x, whose requests 4.9.4 lacks, and commands of 4.9.4 that cannot be compared with Apache's tool."""

import json
from pathlib import Path

import pytest

from tests.admin.conftest import Mqadmin


def test_topics_and_groups_of_a_file(mqadmin: Mqadmin, broker: str, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps([{"topicName": "Listed", "readQueueNums": 3, "writeQueueNums": 5}, {"topicName": "Other"}]))
    printed = mqadmin("updateTopicList", "-b", broker, "-f", str(file))
    assert printed.out == f"submit batch of topic config to {broker} success, please check the result later.\n"
    (queues,) = mqadmin("topicRoute", "-t", "Listed", "--json").json["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"]) == (3, 5)
    file.write_text(json.dumps([{"groupName": "Listed", "retryMaxTimes": 3}]))
    assert mqadmin("updateSubGroupList", "-c", "DefaultCluster", "-f", str(file), "--json").json == {"brokers": [broker]}
    mqadmin("exportMetadata", "-b", broker, "-g", "-f", str(tmp_path))
    table = json.loads((tmp_path / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert table["Listed"]["retryMaxTimes"] == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "expected a JSON list of configs"),
        ("{}", "expected a JSON list of configs: Expected `array`, got `object`"),
        ('[{"readQueueNums": "many"}]', "Expected `int`"),
        ('[{"topicName": "bad!name"}]', "illegal characters"),
    ],
)
def test_a_wrong_file_is_refused(mqadmin: Mqadmin, broker: str, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "list.json"
    file.write_text(text)
    printed = mqadmin("updateTopicList", "-b", broker, "-f", str(file), "--json")
    assert printed.exit_code == 1
    assert told in printed.json["error"]["message"]


def test_a_missing_file_is_reported(mqadmin: Mqadmin, broker: str) -> None:
    assert "no-such.json: No such file or directory" in mqadmin("updateTopicList", "-b", broker, "-f", "no-such.json").err


def test_attributes_of_a_topic(mqadmin: Mqadmin, broker: str, tmp_path: Path) -> None:
    mqadmin("updateTopic", "-b", broker, "-t", "Fifo", "-a", "+message.type=FIFO")
    mqadmin("exportMetadata", "-b", broker, "-t", "-f", str(tmp_path))
    table = json.loads((tmp_path / "topic.json").read_text())["topicConfigTable"]
    assert table["Fifo"]["attributes"] == {"message.type": "FIFO"}


def test_consume_mode_of_a_group(mqadmin: Mqadmin, broker: str) -> None:
    mqadmin("updateTopic", "-b", broker, "-t", "Popped")
    arguments = ("setConsumeMode", "-t", "Popped", "-g", "Poppers", "-m", "POP", "-q", "2")
    printed = mqadmin(*arguments, "-b", broker)
    assert printed.out.splitlines() == [
        f"set consume mode to {broker} success.",
        "topic[Popped] group[Poppers] consume mode[POP] popShareQueueNum[2]",
    ]
    assert mqadmin(*arguments, "-c", "DefaultCluster", "--json").json["brokers"] == [broker]
    refused = mqadmin("setConsumeMode", "-t", "Missing", "-g", "Poppers", "-m", "POP", "-b", broker)
    assert "CODE: 17  DESC: topic[Missing] not exist" in refused.err
    assert mqadmin("setConsumeMode", "-t", "Popped", "-g", "Poppers", "-m", "PUSH", "-b", broker).exit_code == 1


def test_replication_of_a_master_without_slaves(mqadmin: Mqadmin, broker: str) -> None:
    printed = mqadmin("haStatus", "-b", broker)
    assert f"#MasterAddr\t{broker}\n" in printed.out
    assert "#SlaveNum\t0\n" in printed.out
    assert "#SlaveAddr                        #SlaveAckOffset " in printed.out
    info = mqadmin("haStatus", "-c", "DefaultCluster", "--json").json[broker]
    assert (info["master"], info["haConnectionInfo"]) == (True, [])


def test_cluster_list_can_be_limited_to_one_cluster(mqadmin: Mqadmin, broker: str) -> None:
    (row,) = mqadmin("clusterList", "-c", "DefaultCluster", "--json").json
    assert (row["cluster"], row["brokerAddr"], row["brokerId"]) == ("DefaultCluster", broker, "0")
    assert mqadmin("clusterList", "-c", "NoSuchCluster", "--json").json == []


def test_an_offline_broker_is_reported_and_the_others_are_listed(mqadmin: Mqadmin) -> None:
    printed = mqadmin("brokerStatus", "-b", "127.0.0.1:1")
    assert "connect to [127.0.0.1:1] failed" in printed.err


def test_an_export_that_cannot_be_written(mqadmin: Mqadmin, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    printed = mqadmin("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path / "file"), "--json")
    assert printed.exit_code == 1
    assert "configs.json" in printed.json["error"]["message"]
