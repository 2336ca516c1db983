"""The C++ client, from the Python package `rocketmq` that contains it, behind the line protocol of `java/Driver.java`.

Its C interface returns less than the others: of a send only status, id and queue offset; of a message no list of properties,
so that only properties needed by tests are read. It has no limit and no delay of retries, and no transactions.
"""

import ctypes
import json
import os
import sys
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage, SendResult
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, _CMessageQueue, dll

BODY_SHOWN_MAX = 256
PROPERTIES = ("DELAY", "REAL_TOPIC", "UNIQ_KEY", "RETRY_TOPIC", "colour")
SEND_STATUS = ("SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
PULL_TRIES = 10
"""A pull that the client gives up, as it may beside load, is tried again."""
SEND_TRIES, NO_ROUTE = 3, "No route info of this topic"
"""A send is tried again if the client gives up asking for the route, as it may beside load: it has sent nothing."""
PULL_STATUS = ("FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL", "BROKER_TIMEOUT")
CONSUMED, LATER = 0, 1
ASYNC_TIMEOUT_S = 10

Fields = dict[str, list[str]]


def now() -> float:
    return time.monotonic() * 1000


class Driver:
    """All clients of one process, by name."""

    def __init__(self, namesrv_address: str, broker_name: str) -> None:
        self._namesrv_address, self._broker_name = namesrv_address, broker_name
        self._lock = threading.Lock()
        self._producers: dict[str, Producer] = {}
        self._pullers: dict[str, PullConsumer] = {}
        self._running: dict[str, Callable[[], None]] = {}
        self._kept: list[Any] = []  # C++ has pointers to these

    def serve(self) -> None:
        for line in sys.stdin:
            fields = parse_qs(line.strip(), keep_blank_values=True, strict_parsing=True)
            threading.Thread(target=self._answer, args=(fields,), daemon=True).start()
        for shutdown in self._running.values():
            shutdown()

    def show(self, document: dict[str, Any]) -> None:
        with self._lock:
            print(json.dumps(document), flush=True)

    def _answer(self, fields: Fields) -> None:
        request_id = int(fields["id"][0])
        try:
            result = getattr(self, f"op_{fields['op'][0]}")(fields)
            self.show({"id": request_id, "result": result})
        except Exception as error:
            traceback.print_exc()
            self.show({"id": request_id, "error": f"{type(error).__name__}: {error}"})

    # --- producers ---------------------------------------------------------------------------------------------------

    def op_producer(self, fields: Fields) -> None:
        name = fields["name"][0]
        producer = Producer(fields.get("group", [name])[0], timeout=5000, max_message_size=8 << 20)
        self._connect(producer, name, dll.SetProducerInstanceName, fields)
        producer.start()
        self._producers[name], self._running[name] = producer, producer.shutdown

    def op_send(self, fields: Fields) -> list[dict[str, Any]]:
        producer, kind = self._producers[fields["producer"][0]], fields.get("kind", ["sync"])[0]
        messages = [(body, self._message(fields, index, body)) for index, body in enumerate(fields["body"])]
        if kind == "batch":
            sent_at_ms, result = time.time() * 1000, producer.send_batch([message for _, message in messages])
            return [self._sent(",".join(fields["body"]), sent_at_ms, result, -1)]
        if kind == "async":
            return self._send_async(producer, messages)
        return [self._send_one(producer, body, message, kind, fields) for body, message in messages]

    def _send_one(self, producer: Producer, body: str, message: Message, kind: str, fields: Fields) -> dict[str, Any]:
        sent_at_ms = time.time() * 1000
        queue_id = int(fields.get("queueId", ["-1"])[0])
        if kind == "oneway":
            producer.send_oneway(message)
            return self._sent(body, sent_at_ms, None, -1)

        def send() -> SendResult:
            if queue_id < 0:
                return producer.send_sync(message)
            return producer.send_orderly(message, queue_id, queue_selector=lambda size, message, argument: queue_id)

        for left in reversed(range(SEND_TRIES)):
            try:
                return self._sent(body, sent_at_ms, send(), queue_id)
            except Exception as error:
                if NO_ROUTE not in str(error) or not left:
                    raise
        raise AssertionError("SEND_TRIES is positive")

    def _send_async(self, producer: Producer, messages: list[tuple[str, Message]]) -> list[dict[str, Any]]:
        sent: dict[int, dict[str, Any]] = {}
        failures: list[Exception] = []
        done = threading.Semaphore(0)

        def send(index: int, body: str, message: Message) -> None:
            sent_at_ms = time.time() * 1000

            def succeeded(result: SendResult) -> None:
                sent[index] = self._sent(body, sent_at_ms, result, -1)
                done.release()

            def failed(error: Exception) -> None:
                failures.append(error)
                done.release()

            producer.send_async(message, succeeded, failed)

        for index, (body, message) in enumerate(messages):
            send(index, body, message)
        for _ in messages:
            if not done.acquire(timeout=ASYNC_TIMEOUT_S):
                raise TimeoutError(f"{len(sent)} of {len(messages)} answers")
        if failures:
            raise failures[0]
        self._kept.append(messages)
        return [sent[index] for index in range(len(messages))]

    @staticmethod
    def _message(fields: Fields, index: int, body: str) -> Message:
        message = Message(fields["topic"][0])
        size = int(fields.get("size", ["0"])[0])
        message.set_body((body * (size // max(len(body), 1) + 1))[:size] if size else body)
        for name, set_field in (("tags", message.set_tags), ("keys", message.set_keys)):
            if name in fields:
                set_field(fields[name][index % len(fields[name])])
        if "delayLevel" in fields:
            message.set_delay_time_level(int(fields["delayLevel"][0]))
        for name, values in fields.items():
            if name.startswith("property."):
                message.set_property(name.removeprefix("property."), values[0])
        return message

    @staticmethod
    def _sent(body: str, sent_at_ms: float, result: SendResult | None, queue_id: int) -> dict[str, Any]:
        status, message_id, queue_offset = (
            ("ONEWAY", "", -1) if result is None else (SEND_STATUS[result.status], *result[1:])
        )
        return {
            "body": body, "status": status, "msg_id": message_id, "offset_msg_id": "", "queue_id": queue_id,
            "queue_offset": queue_offset, "sent_at_ms": int(sent_at_ms), "acked_at": now(),
        }  # fmt: skip

    # --- consumers ---------------------------------------------------------------------------------------------------

    def op_push(self, fields: Fields) -> None:
        name, is_orderly = fields["name"][0], fields.get("orderly", ["false"])[0].lower() == "true"
        model = MessageModel[fields.get("model", ["CLUSTERING"])[0]]
        consumer = PushConsumer(fields["group"][0], orderly=is_orderly, message_model=model)
        self._connect(consumer, name, dll.SetPushConsumerInstanceName, fields)
        failing = Counter(dict.fromkeys(fields.get("fail", ()), int(fields.get("failTimes", ["1000000"])[0])))

        def consume(_: int, handle: int) -> int:
            message = RecvMessage(handle)
            self.show({"event": name, "message": _described(message)})
            body = message.body.decode(errors="replace")
            with self._lock:
                failing[body] -= 1
                return LATER if failing[body] >= 0 else CONSUMED

        expression = fields.get("expression", ["*"])[0]
        ffi_check(dll.Subscribe(consumer._handle, fields["topic"][0].encode(), expression.encode()))
        consumer._register_callback(consume)
        consumer.start()
        self._kept.append(consumer)
        self._running[name] = consumer.shutdown

    def op_pull(self, fields: Fields) -> dict[str, Any]:
        group = fields.get("group", ["pull-group"])[0]
        with self._lock:
            if group not in self._pullers:
                self._pullers[group] = puller = PullConsumer(group)
                puller.set_namesrv_addr(self._namesrv_address)
                puller.start()
        queue = _CMessageQueue()
        queue.topic, queue.brokerName = fields["topic"][0].encode(), self._broker_name.encode()
        queue.queueId = int(fields.get("queueId", ["0"])[0])

        def pulled() -> Any:
            return dll.Pull(
                self._pullers[group]._handle, ctypes.pointer(queue), fields.get("expression", ["*"])[0].encode(),
                int(fields.get("queueOffset", ["0"])[0]), int(fields.get("count", ["32"])[0]),
            )  # fmt: skip

        result, tries = pulled(), 1
        while PULL_STATUS[result.pullStatus] == "BROKER_TIMEOUT" and tries < PULL_TRIES:
            dll.ReleasePullResult(result)
            result, tries = pulled(), tries + 1
        messages = [_described(RecvMessage(result.msgFoundList[index])) for index in range(result.size)]
        answer = {
            "status": PULL_STATUS[result.pullStatus], "min": result.minOffset, "max": result.maxOffset,
            "next": result.nextBeginOffset, "messages": messages,
        }  # fmt: skip
        dll.ReleasePullResult(result)
        return answer

    def op_shutdown(self, fields: Fields) -> None:
        self._running.pop(fields["name"][0])()

    def _connect(self, client: Any, name: str, set_instance_name: Callable[[int, bytes], int], fields: Fields) -> None:
        client.set_namesrv_addr(self._namesrv_address)
        ffi_check(set_instance_name(client._handle, f"{name}-{os.getpid()}".encode()))
        if "accessKey" in fields:
            client.set_session_credentials(fields["accessKey"][0], fields["secretKey"][0], "")


def _described(message: RecvMessage) -> dict[str, Any]:
    body = message.body
    return {
        "topic": message.topic,
        "body": body.decode(errors="replace") if len(body) <= BODY_SHOWN_MAX else None,
        "body_size": len(body),
        "body_crc": zlib.crc32(body),
        "tags": message.tags.decode(),
        "keys": message.keys.decode(),
        "msg_id": (message.get_property("UNIQ_KEY") or b"").decode(),
        "offset_msg_id": message.id,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "reconsume_times": message.reconsume_times,
        "born_timestamp_ms": message.born_timestamp,
        "store_timestamp_ms": message.store_timestamp,
        "arrived_at_ms": int(time.time() * 1000),
        "arrived_at": now(),
        "properties": {name: value.decode() for name in PROPERTIES if (value := message.get_property(name))},
    }


if __name__ == "__main__":
    Driver(*sys.argv[1:3]).serve()
    os._exit(0)  # threads of the library may still run
