"""A consumer of a topic with the official gRPC client for Python: grpc_consumer.py ENDPOINT TOPIC COUNT.

It runs in a process of its own, which has that client on its path. Ends once COUNT messages came, or after a minute, and
prints their number.
"""

import os
import sys
import threading

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    PushConsumer,
)

PATIENCE_S = 60


class Counting(MessageListener):
    """Counts messages, each once; `complete` is set when there are `wanted`."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.complete = threading.Event()
        self.seen: set[str] = set()

    def consume(self, message: Message) -> ConsumeResult:
        self.seen.add(message.message_id)
        if len(self.seen) >= self.wanted:
            self.complete.set()
        return ConsumeResult.SUCCESS


def main(endpoint: str, topic: str, wanted: int) -> None:
    listener = Counting(wanted)
    subscription = {topic: FilterExpression()}
    consumer = PushConsumer(ClientConfiguration(endpoint, Credentials()), "TourGrpc", listener, subscription)
    consumer.startup()
    listener.complete.wait(PATIENCE_S)
    consumer.shutdown()
    print(len(listener.seen), flush=True)
    os._exit(0)  # threads of the client's pools may still run


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
