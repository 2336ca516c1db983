"""Consoles in threads of the test process, and browsers without JavaScript that call them."""

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from pocketmq.admin.api.client import AdminClient
from pocketmq.client.access import PLAIN, Access
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer, ConsoleThread
from pocketmq.remoting.bodies import HeartbeatData, ProducerData, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.testing import PocketMQ


class Browser(httpx.Client):
    """A browser of one user, with its cookies. Redirects are followed."""

    def submit(self, page: str, path: str, /, **fields: str) -> httpx.Response:
        """Open a page and submit the fields to an address, with the token of the page's forms."""
        return self.post(path, data={"csrf": self.token(page), **fields})

    def token(self, page: str) -> str:
        """Return the token of a page's forms."""
        found = re.search(r'name="csrf" value="(\w+)"', self.get(page).text)
        assert found is not None, f"{page} has no form"
        return found[1]


Opened = Callable[..., Browser]


@contextlib.asynccontextmanager
async def connected_producer(namesrv_address: str, client_id: str, group: str) -> AsyncIterator[None]:
    """Register a producer at each broker, while its connection is open."""
    async with AdminClient([namesrv_address]) as admin:
        for address in (await admin.brokers()).values():
            beat = encode_body(HeartbeatData(client_id, [ProducerData(group)]))
            await admin.call(address, RequestCode.HEART_BEAT, None, beat)
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQ]:
    """The server that all modules share: each test has topics of its own."""
    with PocketMQ(tmp_path_factory.mktemp("server"), clock="system") as running:
        yield running


@pytest.fixture(scope="module")
def browser_of() -> Iterator[Opened]:
    """Open a browser at a console of its own: `browser_of(namesrv_address, console_write=True)`."""
    with ExitStack() as opened:

        def browse(namesrv_address: str, access: Access = PLAIN, **settings: object) -> Browser:
            config = ConsoleConfig(namesrv_addr=namesrv_address, console_port=0, **settings)  # type: ignore[arg-type]
            thread = ConsoleThread(ConsoleServer(config, access))
            thread.start()
            opened.callback(thread.stop)
            return opened.enter_context(Browser(base_url=thread.server.url, follow_redirects=True, timeout=30))

        yield browse


@pytest.fixture(scope="module")
def browser(server: PocketMQ, browser_of: Opened) -> Browser:
    """A browser at a console that may change things."""
    return browser_of(server.namesrv_address, console_write=True)
