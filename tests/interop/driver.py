"""One running driver: a real client library behind a line protocol.

A request is a line of URL-encoded fields (``id=3&op=send&topic=T&body=hello``), which every language can read without a
library; answers and events come back as JSON lines. ``java/Driver.java`` lists the operations, of which the drivers for Go
and C++ lack some.
"""

import contextlib
import itertools
import json
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from pocketmq.cli import child_process
from tests.patience import PATIENCE_S

T = TypeVar("T")


_NO_INTERFACE = '"localHost" is null'
"""Apache's client 5.5.0 reads no address while a network interface of another test disappears, and begins nothing then."""


_ENDS_WITH = "boost::thread_interrupted"
"""Exception with which Apache's client in C++ sometimes ends its process when one of its consumers is shut down."""


class DriverError(Exception):
    """The client library raised; the text is its message."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One send as seen by its client. ``*_at_ms`` are wall clock, ``acked_at`` is the driver's monotonic milliseconds."""

    body: str
    status: str
    msg_id: str
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    sent_at_ms: int
    acked_at: float
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """One message as received by a consumer; ``body`` only if it is short, ``body_crc`` always."""

    topic: str
    body: str | None
    body_size: int
    body_crc: int
    tags: str
    keys: str
    msg_id: str
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    arrived_at_ms: int
    arrived_at: float
    properties: dict[str, str] = field(hash=False)


class Driver:
    def __init__(self, command: Sequence[str | Path], home: Path, env: dict[str, str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._errors = (home / "driver.err").open("wb")
        self._process = child_process.start_program(
            [str(part) for part in command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env, cwd=home,
        )  # fmt: skip
        self._ids = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._received: dict[str, list[Received]] = defaultdict(list)
        self._changed = threading.Condition()
        self.has_ended = False
        self._reader = threading.Thread(target=self._read, name="driver-reader", daemon=True)
        self._reader.start()

    def call(self, op: str, /, **fields: object) -> Any:
        """Does one operation and returns its result. A list gives a field several values."""
        request_id = next(self._ids)
        items = {name: value for name, value in fields.items() if value is not None}
        line = urlencode({"id": request_id, "op": op, **items}, doseq=True) + "\n"
        assert self._process.stdin
        with self._changed:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
            self._wait(lambda: request_id in self._answers, PATIENCE_S, f"no answer to {op} {str(items)[:300]}")
            answer = self._answers.pop(request_id)
        if _NO_INTERFACE in answer.get("error", ""):
            return self.call(op, **fields)
        if "error" in answer:
            raise DriverError(answer["error"])
        return answer["result"]

    def start_producer(self, name: str, **options: object) -> None:
        self.call("producer", name=name, **options)

    def send(self, producer: str, topic: str, bodies: Sequence[str], **options: object) -> list[Sent]:
        """Sends in order. ``kind``: sync (default), async, oneway, batch; ``queueId`` chooses the queue by a selector."""
        result = self.call("send", producer=producer, topic=topic, body=list(bodies), **options)
        return [Sent(**item) for item in result]

    def recall(self, producer: str, topic: str, handle: str) -> str:
        """Recalls a timer message and returns its unique key. Java 5.5.0 only."""
        return str(self.call("recall", producer=producer, topic=topic, handle=handle))

    def request(self, producer: str, topic: str, body: str, timeout_ms: int = 10_000) -> Received:
        """Sends a request and waits for its reply. Blocks: others reply from another thread."""
        return Received(**self.call("request", producer=producer, topic=topic, body=body, timeoutMs=timeout_ms))

    def reply(self, producer: str, asked: Received, body: str) -> Sent:
        """Replies to a request that a consumer got."""
        properties = {f"property.{name}": value for name, value in asked.properties.items()}
        return Sent(**self.call("reply", producer=producer, body=body, **properties))

    def start_consumer(self, name: str, group: str, topic: str, **options: object) -> None:
        """Starts a push consumer from the first offset for all tags; `received` and `wait_for` return its messages."""
        self.call("push", name=name, group=group, topic=topic, **options)

    def shutdown(self, *names: str) -> None:
        """Ends clients. Apache's client in C++ sometimes ends its whole process then, by an exception of its own."""
        for name in names:
            try:
                self.call("shutdown", name=name)
            except (RuntimeError, BrokenPipeError):
                if not self.has_ended or _ENDS_WITH not in self._tail():
                    raise

    def received(self, consumer: str, first: int = 0) -> list[Received]:
        """Returns the messages of a consumer, from number `first` on."""
        with self._changed:
            return self._received[consumer][first:]

    def wait_for(self, consumer: str, count: int, timeout_s: float = PATIENCE_S) -> list[Received]:
        """Waits until a consumer has received that many messages in total."""
        got = self._received[consumer]
        self.wait_until(lambda: len(got) >= count, timeout_s, lambda: f"{consumer}: {len(got)} of {count} messages")
        return self.received(consumer)

    def wait_until(self, condition: Callable[[], T], timeout_s: float, what: Callable[[], str]) -> T:
        """Waits until the received messages meet a condition."""
        with self._changed:
            self._wait(condition, timeout_s, what)
            return condition()

    def pull(self, topic: str, queue_id: int, queue_offset: int, count: int, **options: object) -> dict[str, Any]:
        """One pull through the pull consumer: status, min, max, next and the messages."""
        result = cast(
            dict[str, Any],
            self.call("pull", topic=topic, queueId=queue_id, queueOffset=queue_offset, count=count, **options),
        )
        result["messages"] = [Received(**item) for item in result["messages"]]
        return result

    def pop_in_order(
        self, address: str, topic: str, group: str, attempt_id: str, count: int = 3, poll_ms: int = 0, **who: str
    ) -> list[Received]:
        """Pops messages of queue 0 in order, invisible for a minute. Java 5.5.0 only, like the next two operations."""
        fields = {"count": count, "invisibleMs": 60_000, "pollMs": poll_ms, "attemptId": attempt_id, **who}
        return [Received(**item) for item in self.call("pop", address=address, topic=topic, group=group, **fields)]

    def pop(
        self,
        address: str,
        topic: str,
        group: str,
        count: int,
        invisible_ms: int,
        poll_ms: int = 0,
        broker: str | None = None,
    ) -> list[Received]:
        """Pops messages of all queues. `broker`: the broker's name, if it is not the one that the driver was started for."""
        fields = {"count": count, "invisibleMs": invisible_ms, "pollMs": poll_ms, "attemptId": "", "broker": broker}
        return [Received(**item) for item in self.call("pop", address=address, topic=topic, group=group, **fields)]

    def acknowledge(self, address: str, group: str, message: Received, **who: str) -> str:
        """Acknowledges a message popped in order; returns OK, or that there is no such message."""
        fields = {"handle": message.properties["POP_CK"], **who}
        return str(self.call("acknowledge", address=address, topic=message.topic, group=group, **fields))

    def change_invisible(self, address: str, group: str, message: Received, invisible_ms: int, **who: str) -> str:
        """Sets the invisible time, from now, of a message popped in order."""
        fields = {"handle": message.properties["POP_CK"], "invisibleMs": invisible_ms, **who}
        return str(self.call("changeInvisible", address=address, topic=message.topic, group=group, **fields))

    def close(self, timeout_s: float = 20) -> None:
        """Ends the driver with all clients that still run in it."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(5)
        self._process.stdout.close()
        self._errors.close()

    def pause(self) -> None:
        """Stop the process until `resume`: it does nothing, but its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _wait(self, condition: Callable[[], object], timeout_s: float, what: str | Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.has_ended:
                raise RuntimeError(f"the driver ended: {self._tail()}")
            if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                raise TimeoutError(f"after {timeout_s} s: {what if isinstance(what, str) else what()}")

    def _tail(self) -> str:
        return Path(self._errors.name).read_text(errors="replace")[-2000:]

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            item = json.loads(line)
            with self._changed:
                if "event" in item:
                    self._received[item["event"]].append(Received(**item["message"]))
                else:
                    self._answers[item["id"]] = item
                self._changed.notify_all()
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()
