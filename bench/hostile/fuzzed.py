"""Damaged gRPC messages: random bytes, and valid messages of which some bytes were changed."""

import random

from google.protobuf.duration_pb2 import Duration

from bench.hostile.peer import NEIGHBOUR_TOPIC
from pocketmq.proxy.proto import messaging_pb2 as pb

_METHODS = tuple(pb.DESCRIPTOR.services_by_name["MessagingService"].methods)


def fuzzed_call(rng: random.Random) -> tuple[str, bytes]:
    """Return the name of an rpc, and a message that it may not expect."""
    method = rng.choice(_METHODS)
    message = rng.randbytes(rng.randrange(200))
    if rng.random() < 0.9:
        made = bytearray(_valid(rng, method.input_type.name))
        for _ in range(rng.choice((0, 0, 0, 1, 8))):
            if made:
                made[rng.randrange(len(made))] = rng.randrange(256)
        message = bytes(made)
    return method.name, message


def _valid(rng: random.Random, name: str) -> bytes:
    """Return a message of a type, with random values in all fields that lead to the broker."""
    resource = pb.Resource(name=rng.choice((NEIGHBOUR_TOPIC, "Fuzz", "", "a%b", "%RETRY%x")))
    number = rng.choice((0, 1, 32, -1, 1 << 30, rng.getrandbits(31)))
    queue = pb.MessageQueue(topic=resource, id=rng.choice((0, -1, number)), broker=pb.Broker(name="broker-a"))
    handle = f"0 {rng.getrandbits(41)} {number} 0 {rng.choice('012')} broker-a {number} {number} {number}"
    values = {
        "topic": resource,
        "group": pb.Resource(name=rng.choice(("Fuzz", "g", ""))),
        "message_queue": queue,
        "endpoints": pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=number & 0xFFFF)]),
        "filter_expression": pb.FilterExpression(type=rng.randrange(4), expression=rng.choice(("*", "a||b", "a > 1", "("))),
        "receipt_handle": handle,
        "entries": [pb.AckMessageEntry(message_id="x", receipt_handle=handle)],
        "offset": number,
        "batch_size": number,
        "transaction_id": rng.choice(("x", "WyJicm9rZXItYSIsMSwxLCJnIiwieCJd", "")),
        "recall_handle": rng.choice(("x", "djEgYnJva2VyLWEgdCAxIHg=", "")),
        "messages": [_message(rng, resource) for _ in range(rng.choice((0, 1, 1, 3)))],
        "settings": _settings(rng, resource),
        "long_polling_timeout": Duration(seconds=number),
        "invisible_duration": Duration(seconds=number, nanos=rng.randrange(1 << 31)),
    }
    made = getattr(pb, name)()
    known = {one.name for one in made.DESCRIPTOR.fields}
    return type(made)(**{key: value for key, value in values.items() if key in known}).SerializeToString()  # type: ignore[no-any-return]


def _message(rng: random.Random, topic: pb.Resource) -> pb.Message:
    system = pb.SystemProperties(
        message_id=f"{rng.getrandbits(64):X}", message_type=rng.randrange(8), keys=["k"] * rng.randrange(3)
    )
    if rng.random() < 0.2:
        system.delivery_timestamp.seconds = rng.getrandbits(rng.choice((32, 62)))
    user = {rng.choice(("a", "KEYS", "", "\0")): rng.choice(("b", "", "\1"))}
    return pb.Message(topic=topic, system_properties=system, user_properties=user, body=rng.randbytes(rng.randrange(50)))


def _settings(rng: random.Random, topic: pb.Resource) -> pb.Settings:
    if rng.random() < 0.5:
        return pb.Settings(client_type=rng.randrange(8), publishing=pb.Publishing(topics=[topic]))
    entry = pb.SubscriptionEntry(topic=topic, expression=pb.FilterExpression(type=rng.randrange(4), expression="*"))
    subscription = pb.Subscription(group=pb.Resource(name="Fuzz"), subscriptions=[entry])
    return pb.Settings(client_type=rng.randrange(8), subscription=subscription)
