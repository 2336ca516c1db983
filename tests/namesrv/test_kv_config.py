"""kvConfig.json, in Apache's shape."""

import json

import pytest

from namesrv.kv_config import KVConfigManager


def test_values_survive_a_restart_in_apaches_shape(tmp_path):
    path = tmp_path / "namesrv" / "kvConfig.json"
    manager = KVConfigManager(path)
    manager.load()
    manager.put("ORDER_TOPIC_CONFIG", "T", "a:4;b:4")
    manager.put("ns", "键", "值")
    assert json.loads(path.read_bytes()) == {"configTable": {"ORDER_TOPIC_CONFIG": {"T": "a:4;b:4"}, "ns": {"键": "值"}}}
    again = KVConfigManager(path)
    again.load()
    assert (again.get("ns", "键"), again.namespace("ORDER_TOPIC_CONFIG")) == ("值", {"T": "a:4;b:4"})
    again.delete("ns", "键")
    assert json.loads(path.read_bytes())["configTable"]["ns"] == {}


def test_a_change_that_cannot_be_written_does_not_hold(tmp_path):
    (tmp_path / "file").write_text("")
    manager = KVConfigManager(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(OSError):
        manager.put("ns", "k", "v")
    assert manager.get("ns", "k") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"configTable":{"ns":{"k":1}}}'])
def test_a_file_that_cannot_be_read_is_named(tmp_path, text):
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="kvConfig.json"):
        KVConfigManager(path).load()


def test_the_backup_is_used_when_the_file_is_torn(tmp_path):
    path = tmp_path / "kvConfig.json"
    manager = KVConfigManager(path)
    manager.put("ns", "k", "old")
    manager.put("ns", "k", "new")
    path.write_text('{"confi')
    again = KVConfigManager(path)
    again.load()
    assert again.get("ns", "k") == "old"
