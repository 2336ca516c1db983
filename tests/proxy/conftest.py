"""Fronts that the tests of a module share, and the loop in which they run."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.proxy.grpc_client import GrpcClient
from tests.proxy.served import Served, running_front, running_proxy

QUICK = {"grpc_client_consumer_min_long_polling_timeout_millis": 50, "min_invisible_time_mills_for_recv": 1000}
"""Settings of a front that allow short polls and short invisible times."""
CHECKS = {"transaction_time_out": 500, "transaction_check_interval": 200}
"""Settings of a broker that soon asks about open transactions."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front() -> AsyncIterator[Served]:
    """A broker with a front."""
    async with running_front(QUICK, **CHECKS) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=("broker", "mqproxy"))
async def either(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A broker's own front, and `mqproxy` before a broker."""
    async with running_front(QUICK, **CHECKS) as served:
        if request.param == "broker":
            yield served
            return
        async with running_proxy(served, **QUICK) as proxied:
            yield proxied


@pytest_asyncio.fixture(loop_scope="module")
async def client(either: Served) -> AsyncIterator[GrpcClient]:
    """A client of `either`."""
    async with either.client() as client:
        yield client
