"""Front: the clients of one gRPC port, and what happens to them over time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from pocketmq.client.message import now_ms
from pocketmq.client.versions import version_ordinal
from pocketmq.proxy.calls.call import Call
from pocketmq.proxy.clients.accounts import SignerOf, credentials_of
from pocketmq.proxy.clients.in_hand import InHand
from pocketmq.proxy.clients.session import Session
from pocketmq.proxy.clients.upstream import Upstream
from pocketmq.proxy.config import GrpcConfig
from pocketmq.proxy.http2.call import ServerCall
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal, Statuses
from pocketmq.remoting.codes import LanguageCode
from pocketmq.remoting.signature import Sender
from pocketmq.runtime.admission import RateByAddress

log = logging.getLogger("proxy")

CLIENT_ID_SIZE_MAX: Final = 255
NEW_CLIENTS_AT_ONCE: Final = 50
"""New clients of one host that are admitted at once; further ones wait for their turn, so that others are served."""
NEW_CLIENT_WAIT_S: Final = 10.0
"""A new client that would wait longer is refused."""
LEAVE_S: Final = 3.0
"""Time in which the calls of a client that left may end before its connections close."""
_LANGUAGES: Final = {"DOT_NET": "DOTNET", "GOLANG": "GO", "NODEJS": "NODE_JS", "NODE": "NODE_JS"}
_KNOWN_LANGUAGES: Final = frozenset(LanguageCode.__members__)


class Front:
    """Clients by id and account. `now_ms` is the message time of the brokers."""

    def __init__(
        self,
        config: GrpcConfig,
        upstream: Upstream,
        signer_of: SignerOf | None = None,
        message_time_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.config, self.upstream = config, upstream
        self.statuses = Statuses()
        self._signer_of, self._now_ms = signer_of, message_time_ms
        self._sessions: dict[tuple[str, str], Session] = {}
        self._new_clients = RateByAddress(NEW_CLIENTS_AT_ONCE, 1 / config.grpc_max_new_clients_per_second)
        self._leaving: set[asyncio.Task[None]] = set()
        self._renewing: dict[Session, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def client_count(self) -> int:
        """Number of clients."""
        return len(self._sessions)

    def start(self) -> None:
        """Begin to renew handles and to forget silent clients."""
        period_s = self.config.renew_schedule_period_millis / 1000
        self._tasks = [
            asyncio.ensure_future(_every(period_s, self._renew)),
            asyncio.ensure_future(_every(self.config.grpc_client_idle_time_mills / 4000, self._expire)),
        ]

    async def stop(self) -> None:
        """Unregister all clients and close the connections to brokers."""
        for task in (*self._tasks, *self._renewing.values()):
            task.cancel()
        for session in list(self._sessions.values()):
            self.gone(session)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVE_S)
        await self.upstream.close()

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call(self, context: ServerCall) -> Call:
        """Return the call of an rpc, whose client is new if need be. Raises Refusal."""
        metadata = context.metadata
        session = await self._session(metadata, context)
        session.last_seen_s = asyncio.get_running_loop().time()
        session.client.is_costly = session.popping.is_costly = context.is_costly
        remaining_s = context.time_remaining()
        deadline_ms = None if remaining_s is None or remaining_s > 1e6 else int(remaining_s * 1000)
        return Call(session, self.config, self._now_ms, deadline_ms, metadata.get("x-mq-client-version", ""))

    @contextmanager
    def counted(self, session: Session) -> Any:
        """Count a call that runs. Raises Refusal above the limit of one client."""
        limit = self.config.grpc_max_calls_per_client
        if session.call_count >= limit:
            raise Refusal(pb.TOO_MANY_REQUESTS, f"the client has {limit} calls already (grpcMaxCallsPerClient)")
        session.call_count += 1
        try:
            yield
        finally:
            session.call_count -= 1

    async def _session(self, metadata: Mapping[str, str], context: ServerCall) -> Session:
        client_id = metadata.get("x-mq-client-id", "")
        if not client_id.strip():
            raise Refusal(pb.CLIENT_ID_REQUIRED, "client id cannot be empty")
        if len(client_id) > CLIENT_ID_SIZE_MAX:
            raise Refusal(
                pb.BAD_REQUEST, f"x-mq-client-id has {len(client_id)} characters, the limit is {CLIENT_ID_SIZE_MAX}"
            )
        credentials = credentials_of(metadata, self._signer_of)
        namespace = metadata.get("x-mq-namespace", "")
        key = client_id, "" if credentials is None else credentials.access_key
        session = self._sessions.get(key)
        if session is not None:
            return session
        host, port = context.peer
        await self._take_turn(host)
        session = self._sessions.get(key)
        if session is not None:  # another call of the client was first
            return session
        session = Session(client_id, f"{host}:{port}", namespace, self.upstream, InHand(self.config))
        language = metadata.get("x-mq-language", "").upper()
        language = _LANGUAGES.get(language, language)
        sender = Sender(
            language if language in _KNOWN_LANGUAGES else "OTHER",
            version_ordinal(metadata.get("x-mq-client-version", "")),
            credentials,
            (host, port),
        )
        session.client = self.upstream.brokers.in_the_name_of(sender, session)
        session.popping = self.upstream.brokers.in_the_name_of(sender, session)
        self._sessions[key] = session
        return session

    async def _take_turn(self, host: str) -> None:
        """Wait until a new client of a host is admitted. Raises Refusal."""
        config = self.config
        if len(self._sessions) >= config.grpc_max_clients:
            raise Refusal(pb.TOO_MANY_REQUESTS, f"there are {config.grpc_max_clients} clients already (grpcMaxClients)")
        wait_s = self._new_clients.take(host, NEW_CLIENT_WAIT_S)
        if wait_s > NEW_CLIENT_WAIT_S:
            limit = config.grpc_max_new_clients_per_second
            raise Refusal(
                pb.TOO_MANY_REQUESTS, f"{host} has more than {limit} new clients a second (grpcMaxNewClientsPerSecond)"
            )
        if wait_s:
            await asyncio.sleep(wait_s)

    # --- the life of a client ---------------------------------------------------------------------------------------

    def gone(self, session: Session) -> None:
        """Forget a client: unregister it, and make the messages in its hand visible soon."""
        for key, one in list(self._sessions.items()):
            if one is session:
                del self._sessions[key]
                session.is_gone = True
                session.popping.disconnect_all()
                session.call_count += 1  # until it has left
                task = asyncio.ensure_future(self._leave(session))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def _leave(self, session: Session) -> None:
        try:
            await session.leave()
        except Exception:
            log.exception("%r could not leave in order", session)
        finally:
            session.call_count -= 1
        loop = asyncio.get_running_loop()
        end_s = loop.time() + LEAVE_S
        while session.call_count and loop.time() < end_s:
            await asyncio.sleep(0.05)
        session.client.disconnect_all()

    async def _renew(self) -> None:
        """Begin to renew the handles of each client; one whose broker does not answer keeps no other waiting."""
        for session in self._sessions.values():
            if len(session.hand) and session not in self._renewing:
                task = self._renewing[session] = asyncio.ensure_future(session.hand.renew(session))
                task.add_done_callback(partial(self._renewed, session))

    def _renewed(self, session: Session, done: asyncio.Task[None]) -> None:
        del self._renewing[session]
        if not done.cancelled() and (failure := done.exception()) is not None:
            log.error("%r: its handles could not be renewed", session, exc_info=failure)

    async def _expire(self) -> None:
        oldest_s = asyncio.get_running_loop().time() - self.config.grpc_client_idle_time_mills / 1000
        for session in list(self._sessions.values()):
            if session.write is None and not session.call_count and session.last_seen_s < oldest_s:
                log.info("%r: idle for %d ms", session, self.config.grpc_client_idle_time_mills)
                self.gone(session)


async def _every(seconds: float, step: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await step()
        except Exception:
            log.exception("a periodic step of the front failed")
