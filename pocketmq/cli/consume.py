"""`pocketmq consume`: shows messages of a topic."""

import asyncio
import os
import secrets
import signal
import threading
from types import SimpleNamespace
from typing import Final

from rich.text import Text

from pocketmq.admin.api.groups import delete_group
from pocketmq.cli import server_options
from pocketmq.cli.cluster_admin import ClusterAdmin
from pocketmq.client.access import Access
from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import RETRY_GROUP_PREFIX, MessageExt
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.topic import DeleteTopicInNamesrvRequestHeader, TopicRequestHeader
from pocketmq.runtime.command_line.commands import warn
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.error_text import reason

OWN_GROUP: Final = "pocketmq-consume"
"""Prefix of the names of groups that exist for one run."""
DELETE_S: Final = 5.0
TERMINATED: Final = 128 + signal.SIGTERM


def run(options: SimpleNamespace) -> int | None:
    """Show messages until `--count`, `--timeout` or Ctrl-C. Returns the exit code."""
    return server_options.run(options, lambda access: _consume_known(options, access))


async def _consume_known(options: SimpleNamespace, access: Access) -> int:
    options.is_own_group, options.has_joined = options.group is None, False
    if options.is_own_group:
        options.group = f"{OWN_GROUP}-{os.getpid()}-{secrets.token_hex(3)}"
    running = asyncio.current_task()
    assert running is not None
    is_terminated = False

    def terminate() -> None:
        nonlocal is_terminated
        is_terminated = True
        running.cancel()

    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await _consume(options, access)
    except (OSError, TimeoutError):
        options.has_joined = False  # the servers cannot be reached
        raise
    except RemotingError as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        options.has_joined = False
        hint = f"topic {options.topic!r} does not exist; `pocketmq produce {options.topic} hello` creates it"
        raise RemotingError(refusal.code, hint) from None
    except asyncio.CancelledError:
        if is_terminated:
            return TERMINATED
        raise
    finally:
        if options.is_own_group and options.has_joined:
            await _delete(options, access)


async def _delete(options: SimpleNamespace, access: Access) -> None:
    """Delete the group of this run, its offsets and its retry topic."""
    retry_topic = RETRY_GROUP_PREFIX + options.group
    try:
        async with asyncio.timeout(DELETE_S), ClusterAdmin(options.namesrv, access) as admin:
            for address in admin.brokers.values():
                await delete_group(admin, address, options.group, True)
                await admin.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(retry_topic))
            header = DeleteTopicInNamesrvRequestHeader(retry_topic)
            for address in options.namesrv.split(";"):
                await admin.call(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    except (OSError, TimeoutError, RemotingError) as failure:
        warn(f"the consumer group {options.group} of this run could not be deleted completely: {reason(failure)}")


async def _consume(options: SimpleNamespace, access: Access) -> int:
    console = Printer(soft_wrap=True)
    woken = asyncio.Event()
    shown = 0

    def show(message: MessageExt) -> None:
        nonlocal shown
        console.print(_line(message))
        shown += 1
        woken.set()
        if shown == options.count:
            consumer.finish()

    if options.from_start and not options.is_own_group:
        await _rewind(options, access)
    consumer = PushConsumer(options.namesrv, options.group, "first" if options.from_start else "last", access)
    consumer.subscribe(options.topic, show, options.tags)
    options.has_joined = True  # set before the start is complete: messages and signals may arrive during it
    async with consumer:
        while options.count is None or shown < options.count:
            woken.clear()
            try:
                async with asyncio.timeout(options.timeout):
                    await woken.wait()
            except TimeoutError:
                break
    return 0 if options.count is None or shown >= options.count else 1


async def _rewind(options: SimpleNamespace, access: Access) -> None:
    """Reset the group's offsets to the oldest messages."""
    async with PullConsumer(options.namesrv, options.group, access) as consumer:
        for queue in await consumer.queues(options.topic):
            await consumer.commit(queue, max(0, await consumer.min_offset(queue)))


def _line(message: MessageExt) -> Text:
    about = [f"{message.broker_name} {message.queue_id} @ {message.queue_offset}"]
    about += [f"tag={message.tags}"] if message.tags else []
    about += [f"key={message.keys}"] if message.keys else []
    about += [f"attempt={message.reconsume_times + 1}"] if message.reconsume_times else []
    return Text.assemble((" ".join(about) + "  ", "dim"), message.body.decode(errors="backslashreplace"))
