"""Each test file of a client (`CLIENT`) gets its cases with each front, whose servers start once for the file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import need_java
from tests.interop.drivers import needed
from tests.interop.grpc.clients import CLIENTS, Client
from tests.interop.grpc.fronts import Front, serves
from tests.interop.grpc.verdicts import CASES, Bench
from tests.support.amount import IS_LONG

LONG = ("broker", "apache", "mqproxy", "mqproxy-4.9.4", "mqproxy-5.5.0")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    client = CLIENTS[metafunc.module.CLIENT]
    asked = metafunc.config.getoption("grpc_fronts", default=None)
    fronts = asked.split(",") if asked else LONG if IS_LONG else client.fronts
    without = client.without if asked or IS_LONG else client.without | client.in_long
    pairs = [(front, case) for front in fronts for case in CASES if case not in without and serves(front, case)]
    metafunc.parametrize(("front", "case"), pairs, indirect=["front"], scope="module")


@pytest.fixture(scope="module")
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    if request.param != "broker":
        need_java()
    with needed(f"front {request.param}"):
        running = Front(request.param, tmp_path_factory.mktemp(f"grpc-{request.param}"))
    yield running
    running.close()


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = CLIENTS[request.module.CLIENT]
    return found


@pytest.fixture
def bench(client: Client, front: Front, case: str, tmp_path: Path) -> Iterator[Bench]:
    with needed(f"gRPC client {client.name}"):
        prepared = Bench(client, front, case, tmp_path)
    try:
        yield prepared
    finally:
        prepared.close()
