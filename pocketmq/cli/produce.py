"""`pocketmq produce`: sends messages."""

import argparse
import sys

from pocketmq.cli import server_options
from pocketmq.cli.clock import parse_duration_ms
from pocketmq.client.access import Access
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer

DELAY_LEVEL_MAX = 18


def run(options: argparse.Namespace) -> int:
    """Send the messages; print one line per message with its place. Returns the exit code."""
    if not 0 <= options.delay_level <= DELAY_LEVEL_MAX:
        print(f"pocketmq produce: --delay-level must be 1 to {DELAY_LEVEL_MAX}, not {options.delay_level}", file=sys.stderr)
        return 2
    if options.count < 1:
        print(f"pocketmq produce: --count must be 1 or more, not {options.count}", file=sys.stderr)
        return 2
    properties = {}
    if options.delay is not None:
        try:
            properties["TIMER_DELAY_MS"] = str(parse_duration_ms(options.delay))
        except ValueError as wrong:
            print(f"pocketmq produce: --delay: {wrong}", file=sys.stderr)
            return 2
    return server_options.run(options, "produce", lambda access: _send(options, access, properties))


async def _send(options: argparse.Namespace, access: Access, properties: dict[str, str]) -> int:
    async with Producer(options.namesrv, "pocketmq-produce", access) as producer:
        for text in options.messages or (line.rstrip("\n") for line in sys.stdin):
            for _ in range(options.count):
                body = text.encode(errors="surrogateescape")
                message = Message(options.topic, body, options.tag, options.key, options.delay_level, properties)
                result = await producer.send(message)
                where = f"{result.queue.broker_name} queue {result.queue.queue_id} @ {result.queue_offset}"
                print(f"{result.status} {result.msg_id} {where}", flush=True)
    return 0
