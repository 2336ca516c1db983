"""Choice between the compiled lane and the Python path: POCKETMQ_LANE, and whether the lane is built."""

import logging
from types import SimpleNamespace

import pytest

from pocketmq import lane
from pocketmq.broker.handlers.send import RARE_PROPERTIES
from pocketmq.broker.lane.sends import PLAIN_PROPERTIES
from pocketmq.runtime.lifecycle import StartError
from tests.broker.running import running_broker


async def test_broker_says_that_the_lane_is_turned_off(monkeypatch, caplog):
    monkeypatch.setenv(lane.VARIABLE, "0")
    with caplog.at_level(logging.INFO):
        async with running_broker():
            pass
    assert "compiled lane: off (POCKETMQ_LANE=0)" in caplog.messages


def _not_built(name: str) -> None:
    raise ImportError(f"No module named {name!r}")


def _of_other_sources(name: str) -> SimpleNamespace:
    return SimpleNamespace(INTERFACE=lane.INTERFACE - 1)


@pytest.mark.parametrize(
    "module, why",
    [
        (_not_built, "it is not built; `make setup` builds it where cargo is installed"),
        (_of_other_sources, "it was built from other sources; `make lane` builds it anew"),
    ],
)
async def test_broker_without_a_usable_module_serves_in_python_and_says_why(module, why, monkeypatch, caplog):
    monkeypatch.delenv(lane.VARIABLE, raising=False)
    monkeypatch.setattr(lane, "import_module", module)
    with caplog.at_level(logging.INFO):
        async with running_broker():
            pass
    assert f"compiled lane: off ({why})" in caplog.messages


async def test_required_lane_that_is_not_built_is_an_error_at_the_start(monkeypatch):
    monkeypatch.setenv(lane.VARIABLE, "1")
    monkeypatch.setattr(lane, "import_module", _not_built)
    with pytest.raises(StartError, match="POCKETMQ_LANE=1, but the compiled lane cannot be used"):
        async with running_broker():
            pass


async def test_other_value_of_the_variable_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setenv(lane.VARIABLE, "yes")
    with pytest.raises(StartError, match="POCKETMQ_LANE='yes' in the environment must be 0 or 1"):
        async with running_broker():
            pass


def test_no_property_that_delays_or_changes_a_message_is_ordinary():
    """The lane takes names with a lower-case letter that do not begin with an underscore, and the listed ones."""
    for name in RARE_PROPERTIES:
        assert name not in PLAIN_PROPERTIES
        assert name.startswith("_") or name == name.upper()
