"""A tour of RocketMQ 5 with the official gRPC client for Python: normal, FIFO, delayed and transactional messages.

    pip install rocketmq-python-client
    sh examples/grpc/create_topics.sh 127.0.0.1:9876
    python examples/grpc/python/tour.py 127.0.0.1:8081

Prints `SENT topic count`, `CONSUMED topic count` and for each delayed message `LATE ms`: how long after its due time it
came.
"""

import itertools
import math
import os
import sys
import time
from collections import Counter

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.v5.exception import InternalErrorException

TOPICS = "TourNormal", "TourFifo", "TourTransaction", "TourDelayed"
NORMAL, ORDERS, STEPS, TRANSACTIONS, DELAYED = 20, 2, 5, 3, 3
DELAY_S = 5
INVISIBLE_S = 30
PATIENCE_S = 60

sent: Counter[str] = Counter()
consumed: Counter[str] = Counter()
seen: set[str] = set()
last_step: dict[str, int] = {}
disorders: list[str] = []


class Committed(TransactionChecker):
    """The answer for transactions of which the server heard nothing, such as those of a producer that was killed."""

    def check(self, message: Message) -> TransactionResolution:
        return TransactionResolution.COMMIT


def message(topic: str, body: str, **attributes: object) -> Message:
    one = Message()
    one.topic, one.body = topic, body.encode()
    for name, value in attributes.items():
        setattr(one, name, value)
    return one


def send_all(producer: Producer) -> None:
    for i in range(NORMAL):
        producer.send(message("TourNormal", f"normal {i}", tag="tour", keys=f"order-{i}"))
        sent["TourNormal"] += 1
    for step, order in itertools.product(range(STEPS), range(ORDERS)):  # messages of one group are received in order
        producer.send(message("TourFifo", f"{order} {step}", message_group=f"order-{order}"))
        sent["TourFifo"] += 1
    for i in range(TRANSACTIONS + 1):
        transaction = producer.begin_transaction()
        producer.send(message("TourTransaction", f"transaction {i}"), transaction)
        if i == TRANSACTIONS:
            transaction.rollback()  # no consumer receives it
        else:
            transaction.commit()
            sent["TourTransaction"] += 1
    for _ in range(DELAYED):
        due_s = math.ceil(time.time()) + DELAY_S  # this client takes whole seconds
        producer.send(message("TourDelayed", str(due_s * 1000), delivery_timestamp=due_s))
        sent["TourDelayed"] += 1


def receive_all(configuration: ClientConfiguration, topic: str) -> None:
    consumer = SimpleConsumer(configuration, f"{topic}Group", {topic: FilterExpression()}, await_duration=5)
    consumer.startup()
    deadline = time.monotonic() + PATIENCE_S
    while consumed[topic] < sent[topic] and time.monotonic() < deadline:
        try:
            found = consumer.receive(16, INVISIBLE_S)
        except InternalErrorException:  # this client does not wait until the server has its settings
            time.sleep(0.1)
            continue
        for one in found:
            count(one)
            consumer.ack(one)  # else it comes again after INVISIBLE_S
    consumer.shutdown()


def count(one: Message) -> None:
    if one.message_id in seen:
        return  # duplicates are possible
    seen.add(one.message_id)
    body = one.body.decode()
    consumed[one.topic] += 1
    if one.topic == "TourDelayed":
        print("LATE", int(time.time() * 1000) - int(body))
    if one.topic == "TourFifo":
        order, step = body.split()
        if int(step) != last_step.get(order, -1) + 1:
            disorders.append(f"order {order}: step {step} after {last_step.get(order)}")
        last_step[order] = int(step)


def main(endpoint: str) -> int:
    configuration = ClientConfiguration(endpoint, Credentials())
    producer = Producer(configuration, TOPICS, checker=Committed())
    producer.startup()
    send_all(producer)
    for topic in TOPICS:
        receive_all(configuration, topic)
    producer.shutdown()
    for what, counts in (("SENT", sent), ("CONSUMED", consumed)):
        for topic, number in counts.items():
            print(what, topic, number)
    for line in disorders:
        print("DISORDER", line)
    return 0 if consumed == sent and not disorders else 1


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(status)  # threads of the client's pools may still run
