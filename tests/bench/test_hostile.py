"""The hostile bench: its measurements, and the duration and rate of its attacks."""

import socketserver
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bench.hostile import run
from bench.hostile.attacks import ATTACKS, described
from bench.hostile.frames import raw
from bench.hostile.measure import MemoryWatch, Window, percentile_ms, stalls
from bench.hostile.peer import BURST_SECONDS, CHUNK, Peer
from bench.hostile.result import Memory, Result, is_within_limit, markdown

RATE, SECONDS = 2e6, 0.25
PREPARING = {
    "headers-huge": 3,
    "zip-bombs": 3,
    "zip-bombs-namesrv": 3,
    "slow-bytes": 3,
    "tags-huge": 1,
    "queues-locked": 1,
    "unread-notifications": 2.0,
}
"""Seconds to allow for attacks that first make large requests or many connections."""
LATE_SECONDS_MAX = 60.0
SLOW_SECONDS = 20.0
"""Duration on a machine too slow to send anything in the short one."""
ANSWER = raw(b'{"code":0,"flag":1,"opaque":1,"extFields":{"offset":"7"}}')


class Sink(socketserver.BaseRequestHandler):
    """Sends one answer to any request, and keeps reading."""

    def handle(self) -> None:
        self.request.sendall(ANSWER)
        while self.request.recv(1 << 16):
            pass


@pytest.fixture(scope="module")
def sink() -> Iterator[str]:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close, request_queue_size = True, False, 1000

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # connection resets are expected here

    with Server(("127.0.0.1", 0), Sink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "connection-flood"])
def test_attack_keeps_its_duration_and_rate(sink: str, name: str) -> None:
    assert described(name)
    for duration in (PREPARING.get(name, SECONDS), SLOW_SECONDS):
        peer = Peer(sink, sink, duration, RATE)
        began = time.monotonic()
        try:
            ATTACKS[name](peer)
        finally:
            peer.close_all()
        seconds = time.monotonic() - began
        if peer.sent > 0 or name == "none":
            break
    assert seconds < peer.seconds + LATE_SECONDS_MAX
    assert peer.sent <= RATE * (seconds + BURST_SECONDS) + CHUNK
    assert peer.sent > 0 or name == "none"


def test_a_percentile_is_a_measured_value() -> None:
    samples = [(float(i), i / 1000) for i in range(1, 101)]
    assert [percentile_ms(samples, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile_ms([], 0.99) == 0


def test_overlapping_waits_count_as_one_stall() -> None:
    assert stalls([(0.0, 0.01), (1.0, 0.5), (1.2, 0.3), (1.4, 0.2), (3.0, 0.06)]) == pytest.approx([0.6, 0.06])


def test_window_contains_the_requests_sent_in_it() -> None:
    assert Window(1, 2).of([(0.9, 9.0), (1.0, 9.0), (1.9, 9.0), (2.0, 9.0)]) == [(1.0, 9.0), (1.9, 9.0)]


def result(**changes: object) -> Result:
    fine: dict[str, object] = {
        "quiet_p99": 2.0,
        "send_p99": 3.0,
        "receive_p99": 4.0,
        "hold_p99": 1.0,
        "route_p99": 1.0,
        "later_p99": 2.0,
    }
    fine |= {"longest": 9.0, "stalls": 0, "stall_longest": 0.0, "resident_peak_mb": 80.0, "log_mb": 0.1, "sent_mb": 20.0}
    fine |= {
        "broker": Memory(30, 60, 36, 4.0),
        "namesrv": Memory(20, 20, 20, 1.0),
        "own_p99": 1.0,
        "failed": 0,
        "is_alive": True,
    }
    return Result(name="x", **(fine | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"receive_p99": 51.0}, "p99 51 ms"),
        ({"hold_p99": 60.0}, "p99 60 ms"),
        ({"later_p99": 15_000.0}, "p99 later 15000 ms"),
        ({"is_alive": False}, "dead"),
        ({"failed": 3}, "3 failed"),
        ({"broker": Memory(30, 60, 37, None)}, "broker's memory"),
        ({"namesrv": Memory(20, 60, 30, None)}, "name server's memory"),
    ],
)
def test_each_limit_is_checked(changes: dict[str, object], problem: str) -> None:
    assert result(**changes).problems == [problem]
    assert problem in markdown([result(**changes)], "Attacks") and "0 of 1" in markdown([result(**changes)], "Attacks")


def test_memory_is_shown_with_the_seconds_until_it_was_back() -> None:
    row = markdown([result(broker=Memory(30, 60, 36, 4.2), namesrv=Memory(20, 60, 30, None))], "Attacks")
    assert "| 30 / 60 / 36, 4 s | 20 / 60 / 30, not back |" in row


class Servers(MemoryWatch):
    """Test double of MemoryWatch: memory of a broker and a name server by the time since the attack ended."""

    def __init__(self, ended: float, broker_mb: Callable[[float], float]) -> None:
        super().__init__([])
        self._ended, self._broker_mb = ended, broker_mb

    def anonymous_mb(self, index: int, window: Window) -> list[float]:
        return [self._broker_mb(window.end - self._ended) if index == 0 else 20.0]


def test_settling_ends_as_soon_as_memory_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100, 200))
    monkeypatch.setattr(run, "_slept", lambda seconds: Window(second := float(next(now)), second + 1))
    watch = Servers(100.0, lambda since: 60.0 if 0 < since < 5 else 30.0)
    later, (broker, namesrv) = run._settled(watch, Window(80, 90), Window(90, 100), 60)
    assert (later.begin, later.end) == (100, 105)
    assert (broker, namesrv) == (Memory(30, 30, 30, 5), Memory(20, 20, 20, 1))


def test_settling_ends_after_its_time_when_memory_is_not_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100, 200))
    monkeypatch.setattr(run, "_slept", lambda seconds: Window(second := float(next(now)), second + 1))
    watch = Servers(100.0, lambda since: 60.0 if since > 0 else 30.0)
    later, (broker, _) = run._settled(watch, Window(80, 90), Window(90, 100), 12)
    assert later.end == 112 and broker == Memory(30, 60, 60, None)


def test_a_limit_on_memory_is_a_share_and_never_below_two_mb() -> None:
    assert is_within_limit(30, 36) and not is_within_limit(30, 36.1)
    assert is_within_limit(5, 7) and not is_within_limit(5, 7.1)


def test_a_row_within_the_limits_is_ok() -> None:
    assert result().problems == [] and "| ok |" in markdown([result()], "Attacks")
