"""The attack on a slave: a backlog of random size with which it has to catch up, again and again."""

import random
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.hostile import frames
from bench.hostile.measure import percentile_ms
from bench.hostile.peer import BROKER_NAME, Peer
from pocketmq.cli import processes
from pocketmq.cli.processes import Server

PAUSE_S_MAX = 2.0
PROBE_S = 0.02


def slave_catching_up(peer: Peer) -> None:
    """A slave, stopped and continued at random while its master stores bursts; requests to the slave are measured, too."""
    keys = {"brokerName": BROKER_NAME, "brokerId": "1", "brokerRole": "SLAVE"}
    with tempfile.TemporaryDirectory(prefix="pocketmq-hostile-slave-") as folder:
        slave = processes.start_broker(Path(folder), peer.namesrv, keys)
        samples: list[tuple[float, float]] = []
        sending = threading.Thread(target=peer.flood, args=(peer.broker, _bursts()))
        try:
            sending.start()
            _measure(peer, slave, samples)
        finally:
            sending.join()
            slave.process.send_signal(signal.SIGCONT)
            slave.stop()
    peer.slave_p99_ms = percentile_ms(samples, 0.99)


def _bursts() -> Iterator[bytes]:
    """Yield the sends of many small messages, or of some of up to 64 KiB, with keys and tags."""
    rng = random.Random("catch up")
    body = rng.randbytes(64 << 10)
    while True:
        size_max = rng.choice((100, 1_000, len(body)))
        for number in range(rng.randrange(1, 100)):
            properties = f"KEYS\x01k{number} {rng.random()}\x02TAGS\x01t{number % 7}\x02"
            yield frames.send(f"Burst{number % 20}", body[: rng.randrange(1, size_max)], properties)


def _measure(peer: Peer, slave: Server, samples: list[tuple[float, float]]) -> None:
    """Stop and continue the slave, and time small requests to it while it runs."""
    rng = random.Random("pauses")
    host, port = slave.address.rsplit(":", 1)
    request = frames.frame(frames.MAX_OFFSET, {"topic": "TBW102", "queueId": 0})
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        reader = connection.makefile("rb")
        while peer.is_on:
            slave.process.send_signal(signal.SIGSTOP)
            peer.wait(rng.uniform(0, PAUSE_S_MAX))
            slave.process.send_signal(signal.SIGCONT)
            until = time.monotonic() + rng.uniform(0, PAUSE_S_MAX)
            while time.monotonic() < until and peer.is_on:
                began = time.monotonic()
                connection.sendall(request)
                (size,) = struct.unpack(">I", reader.read(4))
                reader.read(size)
                samples.append((began, time.monotonic() - began))
                peer.wait(PROBE_S)
