"""A name server and a broker in memory, shared by a module's tests, and `mqadmin` run in this process."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from pocketmq.admin.tool import main
from pocketmq.cli.processes import start_up


class Printed(NamedTuple):
    exit_code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Mqadmin = Callable[..., Printed]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the name server of a running `pocketmq up`."""
    server = start_up(tmp_path_factory.mktemp("up"), "--memory")
    yield server.address
    server.stop()


@pytest.fixture
def alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mqadmin:
    """Return a function that runs mqadmin with its arguments."""
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)

    def run(*arguments: str) -> Printed:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
            raise SystemExit(0)
        printed = capsys.readouterr()
        return Printed(ended.value.code or 0, printed.out, printed.err)  # type: ignore[arg-type]

    return run


@pytest.fixture
def mqadmin(alone: Mqadmin, namesrv: str, monkeypatch: pytest.MonkeyPatch) -> Mqadmin:
    """Return a function that runs mqadmin with the shared servers."""
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    return alone


@pytest.fixture
def broker(mqadmin: Mqadmin) -> str:
    """Address of the shared broker."""
    (data,) = mqadmin("topicRoute", "-t", "TBW102", "--json").json["brokerDatas"]
    return data["brokerAddrs"]["0"]
