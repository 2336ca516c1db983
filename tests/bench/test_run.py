"""The bench beside Apache: when a warm-up ends, what the floor answers, and which lane the broker uses."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import floor, servers, wire
from bench.run import CPU, LOADS, RATE, Bench, Rounds, console
from bench.servers import Running
from bench.warm_up import WarmUp, described, is_settled
from tests.lane.twins import needs_lane

LOADGEN = """#!{python}
import sys, threading, time
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
ended = threading.Event()
for messages in {messages}:
    if not ended.wait(0.05):
        print('{{"step_msgs":%d,"step_cpu_us":1000}}' % messages, flush=True)
ended.wait(30)
print('{{"broker_cpu_us_per_msg":2.5}}')
"""
"""A load generator without a load, whose seconds are shorter."""


@pytest.mark.parametrize(
    ("steps", "settled"),
    [
        ([], False),
        ([20.0], False),
        ([40.0, 30.0, 28.6], True),
        ([20.0, 20.9], True),
        ([20.0, 21.0], False),
        ([21.0, 20.0], False),
        ([20.0, 20.0, 40.0], False),
        ([math.inf, math.inf], False),
    ],
)
def test_a_load_has_settled_once_two_successive_seconds_differ_by_less_than_a_twentieth(
    steps: list[float], settled: bool
) -> None:
    assert is_settled(steps) is settled


def test_a_warm_up_ends_when_the_load_has_settled_but_not_before_its_shortest_time() -> None:
    warm_up = WarmUp(3, 5)
    assert not warm_up.is_over([20.0, 20.0])
    assert warm_up.is_over([20.0, 20.0, 20.0])
    assert not warm_up.is_over([20.0, 20.0, 30.0, 40.0])


def test_a_warm_up_without_an_end_stops_at_its_longest_time_and_says_so() -> None:
    steps = [50.0, 40.0, 30.0, 20.0, 10.0]
    assert WarmUp(3, 5).is_over(steps)
    assert described(steps) == "did not settle in a warm-up of 5 s: the last seconds took 20.00, 10.00 us a message"
    assert described([30.0, 20.0, 20.5]) == "warm-up 3 s, then 20.50 us a message"


def test_a_shorter_warm_up_still_compares_two_seconds() -> None:
    assert WarmUp(20, 90).times(0.25) == WarmUp(5, 22)
    assert WarmUp(4, 8).times(0.1) == WarmUp(2, 2)


@pytest.mark.parametrize(("messages", "count"), [([10, 20, 20, 20], 3), ([10, 20, 40, 80, 160, 320], 5)])
def test_a_load_is_measured_after_its_warm_up(tmp_path: Path, messages: list[int], count: int) -> None:
    loadgen = tmp_path / "loadgen"
    loadgen.write_text(LOADGEN.format(python=sys.executable, messages=messages))
    loadgen.chmod(0o755)
    server = Running("Apache", "127.0.0.1:1", 1, 0, lambda: None)
    result = Bench(loadgen, tmp_path, 1, 1).run(server, warm_up=WarmUp(3, 5))
    assert result["broker_cpu_us_per_msg"] == 2.5
    assert result["steps"] == [1000 / count for count in messages[:count]]


@pytest.fixture
def lowest(tmp_path: Path) -> Iterator[Running]:
    if (missing := floor.available()) is not None:
        pytest.skip(missing)
    contestant = servers.floor_in(tmp_path)
    assert contestant is not None
    running = contestant.start(tmp_path)
    yield running
    running.stop()


def test_the_floor_stores_what_is_sent_and_answers_a_pull_with_32_records(lowest: Running) -> None:
    bodies = [b"%02d " % number * 40 for number in range(40)]
    for body in bodies:
        answer, _ = wire.request(lowest.address, 310, {"b": "Bench", "i": "KEYS\x01k1"}, body)
        assert answer["code"] == 0
    answer, records = wire.request(lowest.address, 11, {"topic": "Bench", "queueOffset": "8"})
    assert (answer["code"], answer["extFields"]["nextBeginOffset"]) == (0, "40")
    size = int.from_bytes(records[:4])
    assert [records[at + 88 : at + 88 + 120] for at in range(0, len(records), size)] == bodies[8:]
    assert wire.request(lowest.address, 11, {"topic": "Bench", "queueOffset": "40"})[0]["code"] == 21


@pytest.mark.parametrize("lane", ["0", pytest.param("1", marks=needs_lane)])
def test_a_broker_is_told_which_lane_to_use(tmp_path: Path, lane: str) -> None:
    broker = servers.start_ours(tmp_path, lane=lane)
    try:
        assert f"POCKETMQ_LANE={lane}" in Path(f"/proc/{broker.pid}/environ").read_text().split("\0")
        assert wire.runtime_info(broker.address)
    finally:
        broker.stop()


def test_without_a_c_compiler_there_is_no_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert servers.floor_in(tmp_path) is None
    assert "cc" in (floor.available() or "")


def test_the_table_has_both_lanes_and_the_floor_with_all_figures_and_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(servers, "has_lane", lambda: True)
    floor_column = servers.Contestant("floor (C)", servers.start_ours, is_floor=True)
    rounds = Rounds([*servers.ours("both"), servers.theirs("4.9.4"), floor_column])
    loads = LOADS["send"] + LOADS["transaction"]
    for factor, column in zip((1, 2, 4, 0.5), rounds.columns, strict=True):
        for load in loads:
            if load.has_floor or not column.is_floor:
                rounds.figures[column.name, load.name] = [
                    {CPU: base * factor, RATE: base * 1000 / factor} for base in (10, 11, 20)
                ]
        rounds.boots[column.name] = rounds.idle[column.name] = [0.3, 0.4, 0.5]
    with console.capture() as shown:
        console.print(rounds.table("", loads))
    rows = {row.split("│")[1].strip(): row.split("│")[2:-1] for row in shown.get().splitlines() if "│" in row}
    first = [cell.strip() for cell in rows["send, pipelined (8 x 16): CPU us/msg"]]
    figures = [" ".join(f"{base * factor:,.2f} " for base in (10, 11, 20)).strip() for factor in (1, 2, 4, 0.5)]
    assert first == [*figures, "0.25 (<= 0.5)", "2.0", "0.50 (<= 0.5)", "4.0"]
    assert [cell.strip() for cell in rows["transactions (8 x 16): CPU us/msg"]][3:] == [
        "",
        "0.25 (<= 0.6)",
        "",
        "0.50 (<= 0.6)",
        "",
    ]
