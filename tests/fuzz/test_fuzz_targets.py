"""A short fuzzing run of all targets with a fixed seed, and tests of the oracles, mutators and corpus.

The long run is `make fuzz FUZZ_ARGS="--inputs 5000000"`.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz.fuzz_corpus import FOLDER, reduced
from tests.fuzz.fuzz_mutators import grow_frames, join_frames, mutate_frames, mutate_json, split_frames
from tests.fuzz.fuzz_oracle import Target, Watch
from tests.support.amount import cases

INPUTS, SEED, GROWN_SEEDS = cases(400, 8_000), 32, cases(3, 24)
CORPUS_SIZE_MAX = 300_000


def test_short_run_of_all_targets_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has wheels for Linux on x86-64 only")
    command = [sys.executable, "-m", "tests.fuzz.fuzz_run", "--inputs", str(INPUTS), "--seed", str(SEED), "--plain"]
    command += ["--grown-seeds", str(GROWN_SEEDS)]
    done = subprocess.run(
        [*command, "--findings", str(tmp_path / "findings")], cwd=Path(__file__).parents[2], capture_output=True,
        text=True, timeout=280
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.gz")) < CORPUS_SIZE_MAX


def watched(tmp_path: Path, one, inputs: list[bytes], **how) -> dict[str, str]:  # type: ignore[no-untyped-def]
    """Return kind -> description of the findings."""
    target = Target("planted", lambda: one, lambda: [], **({"expected": (ValueError,), "base_ms": 20} | how))
    watch = Watch(target, tmp_path)
    for data in inputs:
        watch(data)
    return {finding.kind: f"{finding.what} at {finding.place}" for finding in watch.findings.values()}


def test_undeclared_exception_is_found(tmp_path: Path) -> None:
    def one(data: bytes) -> None:
        if data == b"bad":
            raise KeyError("planted")
        raise ValueError("declared")

    found = watched(tmp_path, one, [b"a", b"bad", b"b"])
    assert list(found) == ["exception"] and "planted" in found["exception"]
    assert (tmp_path / next(path.name for path in tmp_path.glob("*.bin"))).read_bytes() == b"bad"


def test_quadratic_cost_is_found(tmp_path: Path) -> None:
    def one(data: bytes) -> None:
        for at in range(len(data)):
            data.count(b"\0", at)
            sum(data[at : at + len(data) // 20])

    found = watched(tmp_path, one, [b"short"])
    assert "cost" in found, "a short input is grown until its cost is visible"
    assert not watched(tmp_path / "linear", lambda data: sum(data) and None, [b"short"])


def test_single_slow_run_is_no_finding(tmp_path: Path) -> None:
    moments = iter([0.2])

    def one(data: bytes) -> None:
        end_s = time.thread_time() + next(moments, 0.0)
        while time.thread_time() < end_s:
            pass

    assert watched(tmp_path, one, [b"x"]) == {}


def test_mutated_frames_keep_their_lengths() -> None:
    rng = random.Random(1)
    frames = [
        (0, b'{"code":11,"extFields":{"topic":"T"},"flag":0,"opaque":1,"version":401}', b'{"a":[1,2]}'),
        (0, b'{"code":10}', b""),
    ]
    data = join_frames(frames)
    assert split_frames(data) == frames
    whole = [bool(split_frames(mutate_frames(rng, data))) for _ in range(200)]
    assert sum(whole) > 180
    assert len({mutate_json(rng, b'{"a":{"b":[1,"x"]},"c":null}') for _ in range(100)}) > 50
    grown = grow_frames(data, 5_000, rng)
    assert len(split_frames(grown)) == 2 and len(grown) > 4_900


def test_corpus_is_reduced_to_inputs_that_add_edges() -> None:
    from pocketmq.remoting.fastjson import loads

    kept = reduced(loads, [b'{"a":1}', b'{"b":2}', b"[1]", b'{0:"a"}', b'{1:"a"}', b"{{"])
    assert len(kept) < 6 and any(data.startswith(b"{0") or data.startswith(b"{1") for data in kept)


def test_hostile_requests_do_not_leak_memory_of_a_broker() -> None:
    """Resident memory stays bounded over thousands of invalid requests, in a process without instrumentation."""
    program = (
        "import random\n"
        "from tests.fuzz.fuzz_targets import TARGETS\n"
        "from tests.fuzz.fuzz_corpus import read_corpus; from tests.fuzz.fuzz_oracle import resident_size\n"
        "target, rng = TARGETS['broker_requests'], random.Random(32)\n"
        "one, pool, sizes = target.prepare(), target.seeds() + read_corpus('broker_requests'), []\n"
        "for number in range(1, 4001):\n"
        "    data = rng.choice(pool)\n"
        "    one((target.mutate(rng, data) if rng.random() < 0.7 else data)[:4096])\n"
        "    if number % 1000 == 0: sizes.append(resident_size())\n"
        "print(sizes[-1] - sizes[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 40 << 20, "growth after the first thousand requests"
