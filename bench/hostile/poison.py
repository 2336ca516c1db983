"""Attacks on shared state: fields reserved for the server, random data, and texts that are cached."""

import itertools
import json
import os
import random
import socket
import zlib
from collections.abc import Iterator
from typing import Any

from bench.hostile import frames
from bench.hostile.peer import NEIGHBOUR_TOPIC, RARE_TOPIC, Peer

BOMB_SIZE = 40 << 20
CODES = (
    *(10, 11, 12, 14, 15, 17, 18, 21, 25, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 43, 45, 46, 50, 51, 52, 53),
    *(60, 61, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 225, 300, 303, 305, 306, 307, 309, 310, 314, 315, 316, 317),
    *(320, 321, 323, 324, 325, 328, 329, 343, 345, 351, 352, 361, 370, 400, 401, 402, 70_000, 70_001, 70_002, 70_003),
    *(200_050, 200_051, 200_052, 200_053, 200_054, 200_055, 200_151),
)
NAMESRV_CODES = (*range(100, 107), 205, 206, 216, 219, 224, 304, *range(311, 314), 318, 319, 322, 327)
DANGEROUS = {215, 25, 318, 205, 216, 50, 51, 53, 17, 306, 316, 329}
"""Codes of administrative requests. They are not sent, because their own effects must not be what is measured."""

_FIELDS = (
    *("topic", "consumerGroup", "producerGroup", "group", "queueId", "queueOffset", "offset", "commitOffset", "maxMsgNums"),
    *("sysFlag", "suspendTimeoutMillis", "subVersion", "subscription", "expressionType", "extraInfo", "invisibleTime"),
    *("pollTime", "bornTime", "clientId", "clientID", "namespace", "key", "value", "brokerName", "brokerAddr", "brokerId"),
    *("clusterName", "timestamp", "commitLogOffset", "tranStateTableOffset", "commitOrRollback", "msgId", "a", "b", "c"),
    *("d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "delayLevel", "originMsgId", "index", "count", "maxNum"),
)
_VALUES = (
    *(
        "",
        "0",
        "-1",
        "1",
        str(2**31),
        str(2**63),
        "x",
        NEIGHBOUR_TOPIC,
        "NeighbourGroup",
        "true",
        "null",
        "9" * 400,
        "1e309",
    ),
    *("%RETRY%NeighbourGroup", "../../x", "a\x01b\x02", "\0", "\U0001f600", "TBW102", "SCHEDULE_TOPIC_XXXX", "a || b", "*"),
)


def type_poison(peer: Peer) -> None:
    """Requests, held or not, for the neighbour's and quiet queues; their headers set fields reserved for the server."""
    odd: list[dict[str, Any]] = [
        {"~type": 300},
        {"~type": -1},
        {"~type": "x"},
        {"~channel": 1},
        {"~raw": "AA=="},
        {"~type": 1 << 70},
    ]
    peer.ask(peer.broker, frames.send("Hostile"))
    # A request may make the server close its connection, and with it the requests held there: one connection for each kind.
    connections: list[socket.socket | None] = [None] * 4
    for number in itertools.count():
        if not peer.is_on:
            return
        answer = peer.ask(peer.broker, frames.frame(frames.MAX_OFFSET, {"topic": RARE_TOPIC, "queueId": 0}))
        rare = frames.pull(RARE_TOPIC, 0, int(answer.get("offset", 0)), "hostile", 15_000)
        quiet = frames.pull("Hostile", 1 + number % 3, 0, "hostile", 100)
        asked = (
            frames.frame(frames.PULL, quiet, **odd[0]),
            frames.frame(frames.PULL, rare, **odd[0]),
            frames.frame(frames.NOTIFICATION, quiet | {"pollTime": 500, "bornTime": 0}, **odd[0]),
            frames.frame(frames.MAX_OFFSET, rare, **odd[number % len(odd)]),
        )
        for index, data in enumerate(asked):
            connection = connections[index] = connections[index] or peer.connect(peer.broker)
            if connection is not None and not peer.send(connection, data):
                peer.close(connection)
                connections[index] = None
        peer.wait(0.05)


def keys_twice(peer: Peer) -> None:
    """Headers in which code, opaque, flag or extFields occur twice."""
    first = b'{"code":34,"code":%d,"flag":0,"flag":%d,"opaque":%d,"opaque":-5,"language":"JAVA","version":401,'
    ext = b'"extFields":{"topic":"a"},"extFields":{"topic":"%b","topic":"b","queueId":"0","group":"g"}}'

    def requests() -> Iterator[bytes]:
        for number, code in enumerate(itertools.cycle((*CODES, 2**31 - 1, 65536 + 34))):
            header = first % (code if code not in DANGEROUS else 11, number % 4, number) + ext % NEIGHBOUR_TOPIC.encode()
            yield frames.raw(header)

    peer.flood(peer.broker, requests())


def random_bytes(peer: Peer) -> None:
    """Random bytes to both servers, on a new connection whenever the old one is closed."""
    for number in itertools.count():
        if not peer.is_on:
            return
        connection = peer.connect((peer.broker, peer.namesrv)[number % 2])
        if connection is None:
            peer.wait(0.05)
            continue
        while peer.send(connection, os.urandom(random.choice((1, 8, 100, 4_000)))):
            pass
        peer.close(connection)


def _odd_frame(code: int) -> bytes:
    ext = {name: random.choice(_VALUES) for name in random.sample(_FIELDS, random.randrange(len(_FIELDS)))}
    flag = random.choice((0, 0, 0, 2, 1, 3, -1, 2**31 - 1))
    body = random.choice((b"", b"{}", b"[]", b"null", b"x", os.urandom(40), b'{"a":' + b"1" * 100))
    if code < 65536 and random.random() < 0.4:
        return frames.binary(code, ext, body, flag=flag & 0x7FFFFFFF)
    odd = random.choice(({}, {}, {"language": 99}, {"version": -1}, {"opaque": -1}, {"remark": "x" * 300}, {"extFields": 5}))
    return frames.frame(code, ext, body, flag=flag, **odd)


def random_headers(peer: Peer) -> None:
    """Well-framed requests of every code with random fields and bodies, to the broker."""
    codes = itertools.cycle((*(code for code in CODES if code not in DANGEROUS), 0, 99_999))
    peer.flood(peer.broker, (_odd_frame(code) for code in codes))


def random_headers_namesrv(peer: Peer) -> None:
    """Well-framed requests of every code with random fields and bodies, to the name server."""
    codes = itertools.cycle((*(code for code in NAMESRV_CODES if code not in DANGEROUS), 0, 99_999))
    peer.flood(peer.namesrv, (_odd_frame(code) for code in codes))


def remarks_huge(peer: Peer) -> None:
    """Names of 300 KB that an error would repeat, each different."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            name = f"{number}" + "x" * 300_000
            yield frames.frame(frames.PULL, frames.pull(name, 0, 0, "hostile"))
            yield frames.frame(frames.PULL, frames.pull(NEIGHBOUR_TOPIC, 0, 0, name))
            yield frames.send(name)
            yield frames.frame(frames.PULL, frames.pull(NEIGHBOUR_TOPIC, 0, 0, "g", expressionType=name))
            yield frames.frame(
                frames.ACK, {"consumerGroup": "g", "topic": "t", "queueId": 0, "extraInfo": name, "offset": 0}
            )

    peer.flood(peer.broker, requests())


def remarks_huge_namesrv(peer: Peer) -> None:
    """Names of 300 KB that an error would repeat, each different, to the name server."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            name = f"{number}" + "x" * 300_000
            yield frames.frame(frames.ROUTE, {"topic": name})
            yield frames.frame(frames.GET_KV, {"namespace": name, "key": name})

    peer.flood(peer.namesrv, requests())


def tags_huge(peer: Peer) -> None:
    """Subscriptions with 300 KB of tags, each different."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            tags = " || ".join(f"{number}.{i}" for i in range(25_000))
            yield frames.frame(frames.PULL, frames.pull(NEIGHBOUR_TOPIC, 0, 0, "hostile", subscription=tags))
            yield frames.heartbeat("hostile", [f"hostile-{number}"], NEIGHBOUR_TOPIC, tags)

    peer.flood(peer.broker, requests())


def expressions_huge(peer: Peer) -> None:
    """SQL92 with literals of 300 KB, each different."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            text = f"colour = '{number}{'x' * 300_000}'"
            yield frames.frame(
                frames.PULL,
                frames.pull(NEIGHBOUR_TOPIC, 0, 0, "hostile", subscription=text, expressionType="SQL92"),
            )

    peer.flood(peer.broker, requests())


def zip_bombs(peer: Peer) -> None:
    """Compressed messages and batches that expand a thousandfold."""
    bomb = zlib.compress(bytes(BOMB_SIZE))
    compressed = 1
    frames_of_it = (frames.send("Hostile", bomb, f=compressed), frames.send("Hostile", bomb, f=compressed, m="true"))
    peer.flood(peer.broker, itertools.cycle(frames_of_it))


def zip_bombs_namesrv(peer: Peer) -> None:
    """Compressed registrations that expand a thousandfold."""
    bodies = [zlib.compress(bytes(BOMB_SIZE)), zlib.compress(b"\0\0\0\2{}" + b"\x7f\xff\xff\xff" + bytes(BOMB_SIZE))]
    names = itertools.count()
    peer.flood(
        peer.namesrv,
        (
            frames.registration(f"hostile-{next(names)}", "127.0.0.1:1", body, compressed=True)
            for body in itertools.cycle(bodies)
        ),
    )


def pop_handles(peer: Peer) -> None:
    """Acks, changes of invisible times and recalls with handles that no pop returned."""

    def requests() -> Iterator[bytes]:
        own = {"consumerGroup": "hostile", "topic": NEIGHBOUR_TOPIC}
        for number in itertools.count():
            numbers = [random.choice((0, 1, -1, number, 2**31, 2**63, 10**30)) for _ in range(8)]
            handle = " ".join(map(str, numbers[:5])) + f" broker-a {numbers[6]} {numbers[7]}"
            ext = own | {"queueId": number % 5 - 1, "extraInfo": handle, "offset": numbers[0], "invisibleTime": numbers[1]}
            yield frames.frame(frames.ACK, ext)
            yield frames.frame(frames.CHANGE_INVISIBLE, ext)
            row = dict(zip(("so", "q", "rq", "pt", "it"), numbers, strict=False))
            acks = [row | {"c": "hostile", "t": NEIGHBOUR_TOPIC, "r": "0", "b": "/" * 4_000}] * 10
            yield frames.frame(frames.BATCH_ACK, {}, json.dumps({"brokerName": "broker-a", "acks": acks}).encode())
            yield frames.frame(370, {"producerGroup": "p", "topic": NEIGHBOUR_TOPIC, "recallHandle": handle})

    peer.flood(peer.broker, requests())


def transactions(peer: Peer) -> None:
    """Ends of transactions and messages sent back, with random offsets."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            offset = random.choice((random.getrandbits(22), -1, 2**62))
            ext = {"producerGroup": "p", "tranStateTableOffset": number, "commitLogOffset": offset, "msgId": "x"}
            yield frames.frame(37, ext | {"commitOrRollback": 8 + number % 2 * 4})
            yield frames.frame(36, {"offset": offset, "group": f"hostile-{number % 100}", "delayLevel": number % 30 - 5})
            yield frames.send("Hostile", properties="TRAN_MSG\x01true\x02PGROUP\x01hostile\x02", f=4)

    peer.flood(peer.broker, requests())
