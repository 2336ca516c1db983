"""Telemetry: the stream of a client, by which settings go to and fro and by which it is asked; and its heartbeats."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from pocketmq.proxy.calls.call import Call
from pocketmq.proxy.clients.session import Session, Write
from pocketmq.proxy.clients.settings import completed
from pocketmq.proxy.http2.call import ServerCall
from pocketmq.proxy.messages.names import group_name, topic_name
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import OK, Refusal
from pocketmq.remoting.bodies import SubscriptionGroupConfig
from pocketmq.remoting.dispatch import RemotingError

log = logging.getLogger("proxy")

TOPICS_MAX: Final = 1024
SETTINGS_SIZE_MAX: Final = 1 << 18
"""Limits of the settings of one client, which are kept."""


class SettingsRefused(Exception):
    """The settings are refused; a gRPC error ends the stream, because most clients look at nothing else."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(str(failure))
        self.failure = failure


async def telemetry(call: Call, commands: AsyncIterator[pb.TelemetryCommand], context: ServerCall) -> None:
    """Serve a client's stream until it ends. A newer stream of the same client replaces it."""
    session = call.session
    writing = asyncio.Lock()

    async def write(command: pb.TelemetryCommand) -> None:
        async with writing:  # a stream takes one write at a time
            await context.write(command.SerializeToString())

    session.write, session.stream = write, context
    async for command in commands:
        if session.is_gone:
            return  # a client that comes back opens a stream of its new session
        kind = command.WhichOneof("command")
        if kind == "settings":
            await _settings(call, command.settings, write)
        elif kind == "thread_stack_trace":
            session.answered(command.thread_stack_trace.nonce, command)
        elif kind == "verify_message_result":
            session.answered(command.verify_message_result.nonce, command)
        else:
            log.debug("%r sent a command that is none of a client: %s", session, kind)


async def _settings(call: Call, given: pb.Settings, write: Write) -> None:
    """Register the client with its settings, and send them back completed, unless it ends. Raises SettingsRefused."""
    session, before = call.session, call.session.settings
    try:
        _check(session, given)
        session.settings = given
        session.has_settings.set()
        await session.register()
        settings = await current_settings(call)
    except (Refusal, RemotingError, OSError, TimeoutError) as failure:
        if session.is_gone:
            return
        session.settings = before
        raise SettingsRefused(failure) from failure
    session.sent_settings = settings
    await write(pb.TelemetryCommand(status=OK, settings=settings))


def _check(session: Session, given: pb.Settings) -> None:
    """Raises Refusal for names that the client may not use, and for settings that are too large or of no kind of client."""
    if given.WhichOneof("pub_sub") is None:
        raise Refusal(pb.BAD_REQUEST, "there's no publishing or subscription data in settings")
    if given.ByteSize() > SETTINGS_SIZE_MAX:
        raise Refusal(pb.BAD_REQUEST, f"the settings have {given.ByteSize()} bytes, the limit is {SETTINGS_SIZE_MAX}")
    if given.WhichOneof("pub_sub") == "publishing":
        resources = list(given.publishing.topics)
    else:
        group_name(given.subscription.group, session.namespace)
        resources = [entry.topic for entry in given.subscription.subscriptions]
    if len(resources) > TOPICS_MAX:
        raise Refusal(pb.BAD_REQUEST, f"{len(resources)} topics in the settings, the limit is {TOPICS_MAX}")
    for resource in resources:
        topic_name(resource, session.namespace)


async def current_settings(call: Call) -> pb.Settings:
    """Return the client's settings with what the front and its group say at present."""
    session = call.session
    assert session.settings is not None
    group = session.consumer_group()
    config: SubscriptionGroupConfig | None = None
    if group is not None:
        for topic in session.topics():
            try:
                config = await call.upstream.group_config(session.client, topic, group)
                break
            except Refusal:  # the topic has no route yet
                continue
    return completed(session.settings, call.config, config)


async def heartbeat(call: Call, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
    """Keep the client registered; settings that changed since it got them are sent again."""
    session = call.session
    if session.settings is None:
        raise Refusal(pb.UNRECOGNIZED_CLIENT_TYPE, "there is no settings of this client: send them by Telemetry")
    await session.register()
    settings = await current_settings(call)
    if session.write is not None and settings != session.sent_settings:
        session.sent_settings = settings
        await session.write(pb.TelemetryCommand(status=OK, settings=settings))
    return pb.HeartbeatResponse(status=OK)
