"""`pocketmq consume`: shows messages of a topic."""

import argparse
import asyncio
import logging

from rich.console import Console
from rich.text import Text

from pocketmq.cli import server_options
from pocketmq.client.access import Access
from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import MessageExt
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError


def run(options: argparse.Namespace) -> int:
    """Show messages until `--count`, `--timeout` or Ctrl-C. Returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    return server_options.run(options, "consume", lambda access: _consume_known(options, access))


async def _consume_known(options: argparse.Namespace, access: Access) -> int:
    try:
        return await _consume(options, access)
    except RemotingError as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        hint = f"topic {options.topic!r} does not exist; `pocketmq produce {options.topic} hello` creates it"
        raise RemotingError(refusal.code, hint) from None


async def _consume(options: argparse.Namespace, access: Access) -> int:
    console = Console(highlight=False, soft_wrap=True)
    woken = asyncio.Event()
    shown = 0

    def show(message: MessageExt) -> None:
        nonlocal shown
        console.print(_line(message))
        shown += 1
        woken.set()
        if shown == options.count:
            consumer.finish()

    if options.from_start:
        await _rewind(options, access)
    consumer = PushConsumer(options.namesrv, options.group, "first" if options.from_start else "last", access)
    consumer.subscribe(options.topic, show, options.tags)
    async with consumer:
        while options.count is None or shown < options.count:
            woken.clear()
            try:
                async with asyncio.timeout(options.timeout):
                    await woken.wait()
            except TimeoutError:
                break
    return 0 if options.count is None or shown >= options.count else 1


async def _rewind(options: argparse.Namespace, access: Access) -> None:
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
