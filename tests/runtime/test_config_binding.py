"""Binding of key/value text to config classes."""

from dataclasses import dataclass
from enum import Enum

import pytest

from pocketmq.runtime.config import ConfigError, KeyRefused, bind, camel, plan_update, print_items, setting


class FlushDiskType(Enum):
    ASYNC_FLUSH = 0
    SYNC_FLUSH = 1


@dataclass
class Broker:
    broker_name: str = setting("a", important=True)
    broker_ip1: str | None = setting(None, key="brokerIP1")
    listen_port: int = setting(10911, low=0, high=65535)
    ratio: float = 0.75
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    levels: str = "1s 5s"


@dataclass
class Store:
    listen_port: int = 1
    cold: bool = False


def test_keys_are_the_camel_case_of_fields():
    assert camel("store_path_root_dir") == "storePathRootDir"
    assert camel("name") == "name"


def test_values_are_typed_and_missing_keys_have_defaults():
    properties = {
        "brokerName": "b",
        "brokerIP1": " 10.0.0.1 ",
        "listenPort": "7 ",
        "ratio": "1",
        "flushDiskType": "SYNC_FLUSH",
    }
    (config,), report = bind([Broker], properties)
    assert config == Broker("b", "10.0.0.1", 7, 1.0, FlushDiskType.SYNC_FLUSH, "1s 5s")
    assert report.lines() == []


def test_one_file_binds_to_several_classes_and_a_shared_key_is_set_in_each():
    (broker, store), report = bind([Broker, Store], {"listenPort": "5", "cold": "TRUE", "x": "1"})
    assert (broker.listen_port, store.listen_port, store.cold, list(report.unknown)) == (5, 5, True, ["x"])


def test_unknown_and_ignored_keys_are_reported_separately():
    _, report = bind(
        [Broker], {"mapedFileSizeCommitLog": "1", "typo": "2"}, {"mapedFileSizeCommitLog": "misspelt in Apache's docs"}
    )
    assert list(report.unknown) == ["typo"]
    assert report.lines() == ["unknown key typo: ignored", "key mapedFileSizeCommitLog: ignored: misspelt in Apache's docs"]


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("listenPort", "x", "listenPort=x: expected a whole number from 0 to 65535"),
        ("listenPort", "65536", "listenPort=65536: expected a whole number from 0 to 65535"),
        ("listenPort", "", "listenPort=: expected a whole number from 0 to 65535"),
        ("ratio", "many", "ratio=many: expected a number"),
        ("ratio", "nan", "ratio=nan: expected a number"),
        ("flushDiskType", "NEVER", "flushDiskType=NEVER: expected one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("cold", "1", "cold=1: expected true or false"),
    ],
)
def test_error_of_an_invalid_value_has_key_value_and_expected_form(key, text, expected):
    with pytest.raises(ConfigError) as error:
        bind([Broker, Store], {"brokerName": "b", key: text})
    assert expected in error.value.problems


def test_all_invalid_values_are_reported_at_once():
    with pytest.raises(ConfigError) as error:
        bind([Broker], {"listenPort": "x", "ratio": "y"})
    assert len(error.value.problems) == 2


def test_empty_value_of_an_optional_key_is_none():
    assert bind([Broker], {"brokerIP1": ""})[0][0].broker_ip1 is None


def test_printed_items_bind_back():
    config = Broker("b", None, 9, 0.5, FlushDiskType.SYNC_FLUSH, "")
    text = print_items([config, Store(9, True)])
    assert text.splitlines()[0] == "brokerName=b" and "cold=true" in text
    properties = dict(line.split("=", 1) for line in text.splitlines())
    assert bind([Broker], properties)[0] == [config]
    assert print_items([config], important=True) == "brokerName=b\n"


def test_updates_are_all_or_none():
    broker, store = Broker(), Store()
    planned = plan_update([broker, store], {"ratio": "1", "cold": "true"}, {"ratio", "cold"})
    assert planned.apply() == {"ratio": 1.0, "cold": True}
    assert (broker.ratio, store.cold) == (1.0, True)
    with pytest.raises(KeyRefused, match="unknown key nope\nkey brokerName cannot be changed while running"):
        plan_update([broker, store], {"ratio": "2", "nope": "1", "brokerName": "x"}, {"ratio"})
    with pytest.raises(ConfigError, match="cold=maybe"):
        plan_update([broker, store], {"ratio": "2", "cold": "maybe"}, {"ratio", "cold"})
    assert (broker.ratio, broker.broker_name, store.cold) == (1.0, "a", True)


def test_secrets_are_not_listed():
    @dataclass
    class Secretive:
        password: str | None = setting(None, secret=True)

    assert print_items([Secretive("open sesame")]) == "password=******\n"
    assert print_items([Secretive()]) == "password=\n"
