"""`pocketmq produce`: sends messages."""

import sys
from types import SimpleNamespace

from pocketmq.cli import server_options
from pocketmq.client.access import Access
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer
from pocketmq.runtime.command_line.commands import say


def run(options: SimpleNamespace) -> None:
    """Send the messages; print one line per message with its place."""
    properties = {} if options.delay is None else {"TIMER_DELAY_MS": str(options.delay)}
    if not options.messages and sys.stdin.isatty():
        say("each line that is typed is sent as a message; Ctrl-D ends", to_errors=True)
    server_options.run(options, lambda access: _send(options, access, properties))


async def _send(options: SimpleNamespace, access: Access, properties: dict[str, str]) -> None:
    async with Producer(options.namesrv, "pocketmq-produce", access) as producer:
        for text in options.messages or (line.rstrip("\n") for line in sys.stdin):
            for _ in range(options.count):
                body = text.encode(errors="surrogateescape")
                message = Message(options.topic, body, options.tag, options.key, options.delay_level, properties)
                result = await producer.send(message)
                where = f"{result.queue.broker_name} queue {result.queue.queue_id} @ {result.queue_offset}"
                say(f"{result.status} {result.msg_id} {where}")
