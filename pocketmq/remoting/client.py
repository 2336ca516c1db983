"""Client of the remoting protocol: one connection per address, opened at first use and again after a failure.

    answer = await client.invoke("127.0.0.1:9876", RequestCode.GET_ROUTEINFO_BY_TOPIC, header)

Answers are matched to requests by opaque. Requests sent by servers (such as NOTIFY_CONSUMER_IDS_CHANGED) are served by the
routes given to the constructor, as in a server.
"""

import asyncio
import ssl
from copy import copy
from typing import Any, Final, Self

from pocketmq.errors import RequestTimeout
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.channels import ChannelClosed, Channels, NeverHeard
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Body, RemotingCommand
from pocketmq.remoting.dispatch import Dispatcher, RemotingError, Route
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.layout import CLIENT_FRAME_SIZE_MAX
from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.remoting.signature import OURSELVES, Credentials, Sender
from pocketmq.remoting.tls import ReloadingContext
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn

CONNECT_TIMEOUT_S: Final = 3.0
_LIMITS: Final = ConnectionLimits(
    max_unfinished_frame_bytes=CLIENT_FRAME_SIZE_MAX, max_unsent_bytes_per_connection=CLIENT_FRAME_SIZE_MAX
)
"""Larger than a server's limits, because many servers may answer at once with large frames."""


class TlsMismatch(ChannelClosed):
    """Probably one side uses TLS and the other does not, or one side rejects the certificate of the other."""


class Tolerating:
    """`with Tolerating(ResponseCode.TOPIC_NOT_EXIST):` goes on behind the block after a refusal with one of these codes."""

    def __init__(self, *codes: int) -> None:
        self._codes = codes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> bool:
        return isinstance(failure, RemotingError) and failure.code in self._codes


class RemotingClient:
    """Connections to servers, by address `host:port`."""

    is_costly = False
    """Whether a server in the same process serves its requests from the share of costly connections (`fair_share`)."""

    def __init__(
        self,
        turn: Turn,
        timers: Timers,
        table: dict[int, Route] | None = None,
        services: Any = None,
        tls: ReloadingContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Without `tls` connections are plain; without `credentials` requests are not signed."""
        self._channels = Channels(turn, timers, limits=_LIMITS, frame_size_max=CLIENT_FRAME_SIZE_MAX)
        self._table = table or {}
        self._dispatcher = Dispatcher(services, self._table)
        self._sender = OURSELVES if credentials is None else Sender(credentials=credentials)
        self._tls = tls
        self._connecting: dict[str, asyncio.Task[Channel]] = {}
        self._by_address: dict[str, Channel] = {}

    def in_the_name_of(self, sender: Sender, services: Any) -> Self:
        """Return a client with connections of its own, whose requests name `sender` and whose servers' requests are served
        with `services`. It shares the rest with this client, which must be closed last."""
        other = copy(self)
        other._sender, other._dispatcher = sender, Dispatcher(services, self._table)
        other._connecting, other._by_address = {}, {}
        return other

    async def channel(self, address: str) -> Channel:
        """Return the open connection to `address`; connect if necessary. Raises OSError or TimeoutError."""
        channel = self._by_address.get(address)
        if channel is not None and channel.is_open:
            return channel
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.ensure_future(self._connect(address))
            self._connecting[address] = task
            task.add_done_callback(lambda task: self._connected(address, task))
        return await asyncio.shield(task)

    async def invoke(
        self,
        address: str,
        code: int,
        header: CommandHeader | None = None,
        body: Body = b"",
        timeout_s: float = 3.0,
    ) -> RemotingCommand:
        """Send a request and return its answer, whatever its code. Raises OSError, ChannelClosed or TimeoutError."""
        channel = await self.channel(address)
        try:
            return await channel.invoke(code, header, body, timeout_s)
        except NeverHeard as failure:
            does_so = "enforces TLS" if self._tls is None else "requires another certificate (tls.client.certPath) or none"
            raise TlsMismatch(f"{failure} before it sent anything: the server probably {does_so}") from failure

    async def call(
        self,
        address: str,
        code: int,
        header: CommandHeader | None = None,
        body: Body = b"",
        timeout_s: float = 3.0,
    ) -> RemotingCommand:
        """Like `invoke`, but raise RemotingError with code and remark for an answer other than SUCCESS."""
        answer = await self.invoke(address, code, header, body, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(
                answer.code, answer.remark or f"{address} answered request code {code} with code {answer.code}"
            )
        return answer

    async def invoke_oneway(self, address: str, code: int, header: CommandHeader | None = None, body: Body = b"") -> None:
        """Send a request without an answer."""
        (await self.channel(address)).invoke_oneway(code, header, body)

    def send_if_connected(self, address: str, code: int, header: CommandHeader | None = None, body: Body = b"") -> None:
        """Send a request without an answer if there is an open connection to `address`."""
        channel = self._by_address.get(address)
        if channel is not None and channel.is_open:
            channel.invoke_oneway(code, header, body)

    def disconnect(self, address: str) -> None:
        """Close and forget the connection to `address`, if there is one."""
        channel = self._by_address.pop(address, None)
        if channel is not None:
            channel.close()

    def disconnect_all(self) -> None:
        """Close the connections of this client, and none of those made in the name of others."""
        for task in list(self._connecting.values()):
            task.cancel()
        for address in list(self._by_address):
            self.disconnect(address)

    async def close(self) -> None:
        """Close all connections; pending requests fail with ChannelClosed."""
        self.disconnect_all()
        self._channels.close()
        await asyncio.sleep(0)

    def _connected(self, address: str, task: asyncio.Task[Channel]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: all waiters may have been cancelled

    async def _connect(self, address: str) -> Channel:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):  # wait_for of 3.11 may swallow a cancellation
                _, channel = await loop.create_connection(
                    lambda: Channel(self._channels, self._dispatcher, self._sender),
                    host.strip("[]"),
                    int(port),
                    ssl=None if self._tls is None else self._tls.context,
                )
        except TimeoutError:
            raise RequestTimeout(f"{address} accepts no connection within {CONNECT_TIMEOUT_S:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise TlsMismatch(
                f"{address}: its certificate is not trusted (tls.client.trustCertPath): {error.verify_message}"
            ) from error
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if self._tls is None:
                raise
            raise TlsMismatch(f"{address} does not accept a TLS connection: {reason(error)}") from error
        self._by_address[address] = channel
        return channel
