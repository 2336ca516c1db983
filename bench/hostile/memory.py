"""Attacks on memory and descriptors: data that servers keep for a client, and connections without limit."""

import itertools
import os
import random
import socket
import struct
import time
from collections.abc import Callable

from bench.hostile import frames
from bench.hostile.peer import NEIGHBOUR_TOPIC, Peer

FLOOD_CONNECTIONS = 5_000
HELD_PULLS = 100_000
MEGABYTE = 1 << 20


def unfinished_frames(peer: Peer) -> None:
    """Thirty frames of 15 MB each that are never completed."""
    _unfinished(peer, peer.broker)


def unfinished_frames_namesrv(peer: Peer) -> None:
    """Thirty frames of 15 MB each that are never completed, to the name server."""
    _unfinished(peer, peer.namesrv)


def _unfinished(peer: Peer, address: str) -> None:
    connections = list(peer.connections(address, 30))
    head = struct.pack(">II", 15 * MEGABYTE, 100)
    for connection in connections:
        peer.send(connection, head)
    piece = os.urandom(64 * 1024)
    sent = 0
    for connection in itertools.cycle(connections):
        if not peer.is_on or sent > len(connections) * 14.9 * MEGABYTE:
            break
        peer.send(connection, piece)
        sent += len(piece)
    peer.wait_to_the_end(*connections)


def slow_bytes(peer: Peer) -> None:
    """Five hundred connections that send a byte a second of a frame of 15 MB, to both servers."""
    connections = [*peer.connections(peer.broker, 250), *peer.connections(peer.namesrv, 250)]
    head = struct.pack(">II", 15 * MEGABYTE, 100)
    for number in itertools.count():
        if not peer.is_on:
            return
        for connection in connections:
            peer.send(connection, head[number : number + 1] or b"x")
        peer.wait(1.0)


def connection_flood(peer: Peer) -> None:
    """Five thousand connections to each server, opened and kept; then one at a time is closed and replaced."""
    kept: list[tuple[str, socket.socket]] = []
    for address in (peer.broker, peer.namesrv):
        kept += [(address, connection) for connection in peer.connections(address, FLOOD_CONNECTIONS)]
    while peer.is_on and kept:
        address, connection = kept.pop(random.randrange(len(kept)))
        peer.close(connection)
        if (again := peer.connect(address)) is not None:
            kept.append((address, again))
        peer.wait(0.002)


def held_pulls(peer: Peer) -> None:
    """A hundred thousand pulls of a quiet queue, held for tags that no message has; then messages that wake none of them."""
    peer.ask(peer.broker, frames.send("Hostile"))

    def request(number: int) -> bytes:
        ext = frames.pull("Hostile", 0, 1, "hostile", 30_000, subscription=f"t{number % 50}")
        return frames.binary(frames.PULL, ext)

    _held(peer, request, frames.send("Hostile", properties="TAGS\x01other\x02"))


def ha_strangers(peer: Peer) -> None:
    """A hundred connections to the port for slaves that send half a report, each replaced when it is closed."""
    host, port = peer.broker.rsplit(":", 1)
    _slow(peer, f"{host}:{int(port) + 1}" if peer.metrics else peer.broker, bytes(4))


def health_slow(peer: Peer) -> None:
    """A hundred connections to metricsPort that send half a request; a probe of liveness must be answered all the same."""
    _slow(peer, peer.metrics or peer.broker, b"GET /health", probed=peer.metrics)


def _slow(peer: Peer, address: str, begin: bytes, probed: str = "") -> None:
    """Keep a hundred connections that have sent `begin`.

    Raises RuntimeError if none can be opened, or if a probe of `probed` is not answered 200.
    """
    kept: list[socket.socket] = []
    while peer.is_on:
        for connection in [one for one in kept if not peer.read(one)]:
            kept.remove(connection)
            peer.close(connection)
        for connection in peer.connections(address, 100 - len(kept)):
            if peer.send(connection, begin):
                kept.append(connection)
        if probed:
            with socket.create_connection(probed.rsplit(":", 1), 5) as probe:  # type: ignore[arg-type]
                probe.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
                answer = probe.recv(100)
            if b" 200 " not in answer:
                raise RuntimeError(f"the probe of liveness was answered {answer!r}")
        peer.wait(0.1)
    if not peer.sent:
        raise RuntimeError(f"no connection to {address} could be opened")


def held_pops(peer: Peer) -> None:
    """A hundred thousand held pops and notifications, each of another group; then messages that wake none of them."""

    def request(number: int) -> bytes:
        ext = {"consumerGroup": f"h{number}", "topic": "Hostile", "queueId": -1, "pollTime": 30_000, "bornTime": 0}
        if number % 2:
            return frames.frame(frames.NOTIFICATION, ext)
        return frames.frame(frames.POP, ext | {"maxMsgNums": 32, "invisibleTime": 60_000, "initMode": 1})

    peer.ask(peer.broker, frames.send("Hostile"))
    _held(peer, request, frames.send("Other"))


def _held(peer: Peer, request: Callable[[int], bytes], message: bytes) -> None:
    """Send requests on thirty connections until the time is over, and a message each second."""
    connections = list(peer.connections(peer.broker, 30))
    sender = peer.connect(peer.broker)
    next_at = time.monotonic() + 1
    for number, connection in zip(range(HELD_PULLS), itertools.cycle(connections), strict=False):
        if not peer.is_on or sender is None:
            return
        peer.send(connection, request(number), waits=False)
        if time.monotonic() >= next_at:
            next_at += 1
            peer.send(sender, message)
    while peer.is_on and sender is not None:
        peer.send(sender, message)
        for connection in connections:
            peer.read(connection)
        peer.wait(0.5)


def unread_notifications(peer: Peer) -> None:
    """Five hundred members of one group that come and go, and do not read their notifications."""
    connections = list(peer.connections(peer.broker, 500, receive_buffer=4096))
    for number in itertools.count():
        connection = connections[number % len(connections)] if connections else None
        if connection is None or not peer.is_on:
            return
        peer.send(connection, frames.heartbeat(f"hostile-{number % 1500}", ["HostileGroup"]), reads=False, waits=False)
        if number > len(connections):
            gone = {"clientID": f"hostile-{(number - 200) % 1500}", "consumerGroup": "HostileGroup"}
            peer.send(connection, frames.frame(frames.UNREGISTER, gone), reads=False, waits=False)


def unread_answers(peer: Peer) -> None:
    """Two hundred connections that pull all messages and read no answer."""
    connections = list(peer.connections(peer.broker, 200, receive_buffer=4096))
    for number, connection in enumerate(itertools.cycle(connections)):
        if not peer.is_on:
            return
        data = frames.binary(frames.PULL, frames.pull(NEIGHBOUR_TOPIC, number % 4, number % 100, "hostile"))
        peer.send(connection, data, reads=False, waits=False)
        if number % 200 == 199:
            peer.wait(0.01)


def unread_tables(peer: Peer) -> None:
    """Connections to both servers that request whole tables and read no answer."""
    both = [
        *peer.connections(peer.broker, 100, receive_buffer=4096),
        *peer.connections(peer.namesrv, 100, receive_buffer=4096),
    ]
    codes = itertools.cycle((21, 28, 206, 201, 106))
    for number, connection in enumerate(itertools.cycle(both)):
        if not peer.is_on:
            return
        peer.send(connection, frames.frame(next(codes), {}), reads=False, waits=False)
        if number % 200 == 199:
            peer.wait(0.01)


def clients_made_up(peer: Peer) -> None:
    """Heartbeats of new clients on one connection."""
    peer.flood(
        peer.broker, (frames.heartbeat(f"hostile-{number}-{'x' * 2_000}", ["HostileGroup"]) for number in itertools.count())
    )


def other_protocols(peer: Peer) -> None:
    """TLS hellos (whole and half), HTTP requests and SSH greetings, each on a connection that stays open a while."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(502)
    http = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-Filler: " + b"y" * 4_000 + b"\r\n\r\n"
    greetings = itertools.cycle((hello, hello[:100], hello[:1], http, b"SSH-2.0-OpenSSH_9.6\r\n", b"\x16" * 5_000))
    kept: list[socket.socket] = []
    while peer.is_on:
        for address in (peer.broker, peer.namesrv):
            if (connection := peer.connect(address)) is not None:
                peer.send(connection, next(greetings), waits=False)
                kept.append(connection)
        while len(kept) > 500:
            peer.close(kept.pop(0))
        peer.wait(0.002)
