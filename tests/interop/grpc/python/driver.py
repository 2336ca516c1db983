"""Driver of the official gRPC client for Python: DRIVER ENDPOINT CASE TOPIC GROUP [key=value ...].

Runs one case. Prints a JSON object per line: `row` for each consumed message, `note` for another fact, `ready`. Ends with
status 0 after the case, or with 1 and the error on standard error.
"""

import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType
from rocketmq.v5.exception import InternalErrorException

POLL_S = 5  # the least that Apache's proxy accepts
INVISIBLE_S, CHANGED_INVISIBLE_S = 30, 10
DELAY_S, FAR_DELAY_S = 2, 20
Row = Callable[[Message], list[Any]]


def body(message: Message) -> str:
    return message.body.decode()


def attempt_row(message: Message) -> list[Any]:
    return [body(message), message.delivery_attempt]


class Listener(MessageListener):
    """Prints a row for each message, and fails once for each body in `failing`, or always."""

    def __init__(self, case: "Case", row: Row, failing: set[str] | None, held: threading.Event | None) -> None:
        self._case, self._row, self._failing, self._held = case, row, failing, held

    def consume(self, message: Message) -> ConsumeResult:
        self._case.add(self._row(message))
        if self._held is not None:
            self._held.wait()
        if self._failing is None:
            return ConsumeResult.FAILURE
        if body(message) in self._failing:
            self._failing.remove(body(message))
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS


class Checker(TransactionChecker):
    def __init__(self, resolution: Any) -> None:
        self._resolution = resolution

    def check(self, message: Message) -> Any:
        return self._resolution


class Case:
    def __init__(self, endpoint: str, topic: str, group: str, options: dict[str, str]) -> None:
        self.topic, self.group = topic, group
        self.rows_wanted = int(options.get("rows", 0))
        self._wait_s = float(options.get("wait_s", 60))
        self._configuration = ClientConfiguration(endpoint, Credentials())
        self._found = 0
        self._changed = threading.Condition()

    # output

    def _print(self, item: dict[str, Any]) -> None:
        print(json.dumps(item), flush=True)

    def note(self, name: str, value: object) -> None:
        self._print({"note": name, "value": value})

    def ready(self) -> None:
        self._print({"ready": True})

    def add(self, row: list[Any]) -> None:
        with self._changed:
            self._print({"row": row})
            self._found += 1
            self._changed.notify_all()

    def wait_rows(self, rows: int) -> None:
        """Wait until `rows` rows were printed, or as many as the options say."""
        with self._changed:
            self._changed.wait_for(lambda: self._found >= (self.rows_wanted or rows), self._wait_s)

    # clients

    @contextmanager
    def producer(self, resolution: Any = None) -> Iterator[Producer]:
        checker = None if resolution is None else Checker(resolution)
        producer = Producer(self._configuration, (self.topic,), checker=checker)
        producer.startup()
        try:
            yield producer
        finally:
            producer.shutdown()

    @contextmanager
    def push(
        self,
        row: Row = attempt_row,
        failing: set[str] | None = frozenset(),  # type: ignore[assignment]
        expression: FilterExpression | None = None,
        held: threading.Event | None = None,
    ) -> Iterator[None]:
        """Run a push consumer; without `failing` it fails always."""
        listener = Listener(self, row, None if failing is None else set(failing), held)
        subscription = {self.topic: expression or FilterExpression()}
        consumer = PushConsumer(self._configuration, self.group, listener, subscription)
        consumer.startup()
        try:
            yield
        finally:
            consumer.shutdown()

    @contextmanager
    def simple(self) -> Iterator[SimpleConsumer]:
        consumer = SimpleConsumer(self._configuration, self.group, {self.topic: FilterExpression()}, await_duration=POLL_S)
        consumer.startup()
        try:
            yield consumer
        finally:
            consumer.shutdown()

    def received(self, consumer: SimpleConsumer, count: int) -> Iterator[Message]:
        """Yield `count` messages, fewer if the time is over."""
        end = time.monotonic() + self._wait_s
        while count > 0 and time.monotonic() < end:
            try:
                found = consumer.receive(16, INVISIBLE_S)
            except InternalErrorException:  # the client does not wait until the server has its settings
                time.sleep(0.1)
                continue
            yield from found
            count -= len(found)

    def message(self, text: str, **attributes: Any) -> Message:
        message = Message()
        message.topic, message.body = self.topic, text.encode()
        for name, value in attributes.items():
            setattr(message, name, value)
        return message


def tagged(case: Case, number: int) -> Message:
    message = case.message(f"m{number}", tag="aba"[number], keys=f"k{number}")
    message.add_property("index", str(number))
    return message


def send_three(case: Case) -> None:
    with case.producer() as producer:
        for number in range(3):
            producer.send(tagged(case, number))


def normal(case: Case) -> None:
    send_three(case)
    with case.simple() as consumer:
        for message in case.received(consumer, 3):
            [key] = message.keys
            case.add([*attempt_row(message), message.tag, key, message.properties["index"]])
            consumer.ack(message)
        case.note("rest", len(consumer.receive(16, INVISIBLE_S)))


def push(case: Case) -> None:
    with case.push(failing={"m1"}):
        send_three(case)
        case.wait_rows(4)


def fifo(case: Case) -> None:
    with case.push(failing={"o1"}), case.producer() as producer:
        for number in range(4):
            producer.send(case.message(f"o{number}", message_group="one"))
        case.wait_rows(5)


def due_s(delay_s: int) -> int:
    """Return a delivery time, in whole seconds since 1970."""
    return math.ceil(time.time()) + delay_s


def delay(case: Case) -> None:
    sent_ms = 0

    def row(message: Message) -> list[Any]:
        return [*attempt_row(message), round(time.time() * 1000) - sent_ms]

    with case.push(row), case.producer() as producer:
        sent_ms = round(time.time() * 1000)
        producer.send(case.message("later", delivery_timestamp=due_s(DELAY_S)))
        case.wait_rows(1)


def recall(case: Case) -> None:
    with case.push(), case.producer() as producer:
        sent = producer.send(case.message("x", delivery_timestamp=due_s(FAR_DELAY_S)))
        producer.send(case.message("y", delivery_timestamp=due_s(DELAY_S)))
        recalled = producer.recall_message(case.topic, sent.recall_handle)
        case.note("recalled", recalled == sent.message_id)
        case.wait_rows(1)


def transaction(case: Case) -> None:
    with case.push(), case.producer(TransactionResolution.COMMIT) as producer:
        for text in ("committed", "rolled back", "asked"):
            open_transaction = producer.begin_transaction()
            producer.send(case.message(text), open_transaction)
            if text == "committed":
                open_transaction.commit()
            elif text == "rolled back":
                open_transaction.rollback()
        case.wait_rows(2)


def orphan_send(case: Case) -> None:
    with case.producer(TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED) as producer:
        producer.send(case.message("orphan"), producer.begin_transaction())
        case.ready()
        threading.Event().wait()


def orphan_check(case: Case) -> None:
    with case.push(), case.producer(TransactionResolution.COMMIT):
        case.wait_rows(1)


def tag(case: Case) -> None:
    with case.push(expression=FilterExpression("a")):
        send_three(case)
        case.wait_rows(2)


def sql(case: Case) -> None:
    with case.push(expression=FilterExpression("index > 1", FilterType.SQL)):
        send_three(case)
        case.wait_rows(1)


def dlq(case: Case) -> None:
    with case.push(failing=None), case.producer() as producer:
        producer.send(case.message("d0"))
        case.wait_rows(2)


def invisible(case: Case) -> None:
    with case.producer() as producer:
        producer.send(case.message("x"))
    with case.simple() as consumer:
        [first] = case.received(consumer, 1)
        case.add(attempt_row(first))
        consumer.change_invisible_duration(first, CHANGED_INVISIBLE_S)
        changed_s = time.monotonic()
        [second] = case.received(consumer, 1)
        case.note("waited_ms", round((time.monotonic() - changed_s) * 1000))
        case.add(attempt_row(second))
        consumer.ack(second)


def hold(case: Case) -> None:
    with case.push(held=threading.Event()):
        case.wait_rows(1)
        case.ready()
        threading.Event().wait()


def drain(case: Case) -> None:
    with case.push():
        case.wait_rows(1)


def ask(case: Case) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def row(message: Message) -> list[Any]:
        case.note("consumed", body(message))
        return attempt_row(message)

    with case.push(row):
        case.ready()
        stopped.wait()


CASES = {
    "normal": normal, "send": send_three, "push": push,
    "fifo": fifo, "delay": delay, "recall": recall, "transaction": transaction,
    "orphan-send": orphan_send, "orphan-check": orphan_check, "tag": tag, "sql": sql, "dlq": dlq, "invisible": invisible,
    "hold": hold, "drain": drain, "ask": ask,
}  # fmt: skip


def main() -> None:
    endpoint, name, topic, group, *options = sys.argv[1:]
    try:
        CASES[name](Case(endpoint, topic, group, dict(option.split("=", 1) for option in options)))
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of the client's pools may still run


if __name__ == "__main__":
    main()
