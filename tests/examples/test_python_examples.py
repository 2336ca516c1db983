"""The examples of the Python client in examples/python, one after another in this process: what each prints."""

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pocketmq.testing import PocketMQ

FOLDER = Path(__file__).parents[2] / "examples" / "python"
PRINTED = {
    "sending": [
        *["sync SEND_OK Sends"] * 3,
        "async 10 {'SEND_OK'}",
        "oneway",
        "batch SEND_OK 10",
        "splitter True 5000",
    ],
    "ordered": ["order-0 created paid sent", "order-1 created paid sent", "order-2 created paid sent"],
    "delaying": ["recalled True", "level 1 is one second", "two seconds", "at a time"],
    "filtering": ["tags ['bread 25', 'fruit 15', 'fruit 5']", "SQL ['bread 25', 'fruit 15']"],
    "transactions": ["rolled back: no money", "committed", "asked for"],
    "broadcasting": ["cache-1 page-0 page-1 page-2", "cache-2 page-0 page-1 page-2"],
    "request_reply": ["[9, 16, 25]"],
    "tracing": ["Pub True True"],
    "popping": ["12 jobs"],
}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"enablePropertyFilter": "true", "transactionTimeOut": "1000"}
    with PocketMQ(tmp_path_factory.mktemp("mq"), clock="system", settings=settings) as server:
        yield server.namesrv_address


def example(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"python_example_{name}", FOLDER / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PRINTED)
def test_example_prints_what_its_messages_did(name: str, namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = example(name)
    asyncio.run(module.main(namesrv))
    assert capsys.readouterr().out.splitlines() == PRINTED[name]
    if name == "sending":
        module.without_asyncio(namesrv)
        assert capsys.readouterr().out == "without asyncio SEND_OK\n"


def test_every_example_is_run() -> None:
    """The tour is run by tests/interop and the demonstration."""
    assert {path.stem for path in FOLDER.glob("*.py")} == {*PRINTED, "tour"}
