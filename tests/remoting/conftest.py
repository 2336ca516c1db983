"""Fixture for tests with real sockets."""

import pytest

from tests.remoting.in_process import in_process


@pytest.fixture
async def remoting():
    async with in_process() as parts:
        yield parts
