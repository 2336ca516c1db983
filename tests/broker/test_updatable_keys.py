"""updateBrokerConfig accepts exactly the values that are accepted at start."""

import copy

import pytest

from pocketmq.broker.config import UPDATABLE_KEYS, BrokerConfig, check
from pocketmq.remoting.codes import RequestCode
from pocketmq.runtime.config import ConfigError, bind, items_of, plan_update, to_properties
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.config import MessageStoreConfig
from tests.broker.running import ask, connected, running_broker

HOSTILE = [
    "", " ", "junk", "-1", "-2147483649", "0", "1", "7", "24", "100", "101", "2147483647", "2147483648",
    "9223372036854775808", "9" * 400, "9" * 5000, "1e400", "nan", "inf", "0x10", "1.5", "TRUE", "yes", "04;05", "4;;5",
    "25", "04,05", "24;04", "04;" * 5000, "\x00", "\u0664", "a" * 100_000,
]  # fmt: skip


def at_start(properties):
    """Return the configs that a start creates from `properties`; raises the error of a refused start."""
    (config, store_config), _ = bind([BrokerConfig, MessageStoreConfig], properties)
    check(config, store_config)
    return config, store_config


@pytest.mark.parametrize("key", sorted(UPDATABLE_KEYS))
def test_value_is_accepted_at_runtime_exactly_if_accepted_at_start(key):
    for text in HOSTILE:
        running = at_start({})
        before = copy.deepcopy(running)
        changes = {"traceOn": "false", key: text}  # with a valid change, which must not be made alone
        try:
            plan_update(running, changes, UPDATABLE_KEYS, check).apply()
        except (ConfigError, StartError) as error:
            said = str(error)
            assert running == before, text[:50]
            assert said.startswith(f"{key}={text[:150]}") and ("expected" in said or "limit" in said)
            assert len(said) < 500
            with pytest.raises((ConfigError, StartError)):
                at_start(changes)
        else:
            assert to_properties(running) == to_properties(at_start(changes)), text[:50]


def test_each_updatable_number_has_both_limits():
    items = items_of(BrokerConfig) | items_of(MessageStoreConfig)
    numbers = [items[key] for key in UPDATABLE_KEYS if items[key].kind in (int, float)]
    assert [item.key for item in numbers if item.low is None or item.high is None] == []


async def test_refused_change_has_no_effect_and_a_reason():
    async with running_broker() as broker, connected() as client:
        body = b"traceOn=false\ndeleteWhen=junk\n"
        answer = await ask(client, broker, RequestCode.UPDATE_BROKER_CONFIG, None, body)
        assert (answer.code, answer.remark) == (
            1, "deleteWhen=junk: expected hours from 00 to 23, separated by ';'",
        )  # fmt: skip
        assert broker.config.trace_on and broker.store_config.delete_when == "04"
        body = b"".join(b"key%d=1\n" % number for number in range(5_000))
        answer = await ask(client, broker, RequestCode.UPDATE_BROKER_CONFIG, None, body)
        assert answer.code == 1 and "and 4980 more" in answer.remark and len(answer.remark) < 1000
