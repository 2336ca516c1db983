"""Fixture for tests with real sockets."""

import pytest

from tests.lane.twins import needs_lane
from tests.remoting.in_process import in_process


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module with `BOTH_TRANSPORTS` also with connections that the compiled lane reads and writes."""
    if "remoting" in metafunc.fixturenames and hasattr(metafunc.module, "BOTH_TRANSPORTS"):
        metafunc.parametrize("remoting", ["loop", pytest.param("lane", marks=needs_lane)], indirect=True)


@pytest.fixture
async def remoting(request):
    async with in_process(in_lane=getattr(request, "param", "loop") == "lane") as parts:
        yield parts
