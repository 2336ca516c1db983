"""The load of one client, a process of its own: `python -m bench.clients.load CLIENT --namesrv A --endpoint B ...`.

It sends `--count` messages, 64 at a time, then consumes them by a push consumer. A line of JSON has CPU and wall time of
this process for each message of both. The clients are imported only here, because two of them have the same name.
"""

import argparse
import asyncio
import json
import os
import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 64
GROUP = "bench-clients"
WARM_SHARE = 10
"""One in so many messages is sent before the measured ones."""


class Measured:
    """CPU and wall time from its creation to `us`."""

    def __init__(self) -> None:
        self._cpu_s, self._began_s = _cpu_s(), time.monotonic()

    def us(self, count: int) -> dict[str, float]:
        """Return the time for each message."""
        wall_s = time.monotonic() - self._began_s
        return {"cpu": (_cpu_s() - self._cpu_s) / count * 1e6, "wall": wall_s / count * 1e6}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Arrivals:
    """Counts consumed messages; thread-safe."""

    def __init__(self, count: int) -> None:
        self._left, self._lock = count, threading.Lock()
        self.done = threading.Event()

    def one(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.done.set()


Sent = Callable[[int], None]


def in_threads(send: Callable[[], object]) -> Sent:
    """Return a load of a blocking send."""

    def run(count: int) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda _: send(), range(count)):
                pass

    return run


def pocketmq(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    from pocketmq import Message, Producer, PushConsumer

    async def main() -> dict[str, dict[str, float]]:
        async with Producer(options.namesrv, GROUP) as producer:

            async def sender(count: int) -> None:
                for _ in range(count):
                    await producer.send(Message(options.topic, body))

            async def send(count: int) -> None:
                await asyncio.gather(*(sender(count // AT_ONCE) for _ in range(AT_ONCE)))

            await send(options.count // WARM_SHARE)
            measured = Measured()
            await send(options.count)
            sent = measured.us(options.count)
        arrivals, total = Arrivals(options.total), options.total
        consumer = PushConsumer(options.namesrv, f"{GROUP}-pocketmq", "first")
        consumer.subscribe(options.topic, lambda message: arrivals.one())
        measured = Measured()
        async with consumer:
            while not arrivals.done.is_set():
                await asyncio.sleep(0.01)
            return {"send": sent, "consume": measured.us(total)}

    body = b"x" * options.size
    return asyncio.run(main())


def cpp(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    from rocketmq.client import Message, Producer, PushConsumer
    from rocketmq.exceptions import RocketMQException

    producer = Producer(GROUP)
    producer.set_namesrv_addr(options.namesrv)
    producer.start()

    def send() -> None:
        message = Message(options.topic)
        message.set_body(b"x" * options.size)
        while True:
            try:
                producer.send_sync(message)
                return
            except RocketMQException:  # with several threads it finds no route now and then
                time.sleep(0.001)

    sent = _sent(in_threads(send), options)
    producer.shutdown()
    arrivals = Arrivals(options.total)
    consumer = PushConsumer(f"{GROUP}-cpp")
    consumer.set_namesrv_addr(options.namesrv)
    consumer.subscribe(options.topic, lambda message: arrivals.one())
    measured = Measured()
    consumer.start()
    arrivals.done.wait()
    return {"send": sent, "consume": measured.us(options.total)}


def grpc(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    from rocketmq import (
        ClientConfiguration,
        ConsumeResult,
        Credentials,
        FilterExpression,
        Message,
        MessageListener,
        Producer,
        PushConsumer,
    )

    configuration = ClientConfiguration(options.endpoint, Credentials())
    producer = Producer(configuration, (options.topic,))
    producer.startup()

    def send() -> None:
        message = Message()
        message.topic, message.body = options.topic, b"x" * options.size
        producer.send(message)

    sent = _sent(in_threads(send), options)
    producer.shutdown()
    arrivals = Arrivals(options.total)

    class Listener(MessageListener):
        def consume(self, message: Message) -> ConsumeResult:
            arrivals.one()
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration, f"{GROUP}-grpc", Listener(), {options.topic: FilterExpression()})
    measured = Measured()
    consumer.startup()
    arrivals.done.wait()
    return {"send": sent, "consume": measured.us(options.total)}


def _sent(send: Sent, options: argparse.Namespace) -> dict[str, float]:
    send(options.count // WARM_SHARE)
    measured = Measured()
    send(options.count)
    return measured.us(options.count)


LOADS = {"pocketmq": pocketmq, "cpp": cpp, "grpc": grpc}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=LOADS)
    for name in ("namesrv", "endpoint", "topic"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("count", "size"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    options.count -= options.count % (AT_ONCE * WARM_SHARE)
    options.total = options.count + options.count // WARM_SHARE
    print(json.dumps(LOADS[options.client](options)), flush=True)
    os._exit(0)  # the clients in C++ and with gRPC would wait for their long polling


if __name__ == "__main__":
    main()
