"""Oracles of the fuzz targets: expected exceptions, CPU time per input, and growth of memory.

The fuzzer calls a `Watch` for each input. A finding does not end the run: it is recorded once per place in the code, with
the shortest input that led there.
"""

import contextlib
import json
import random
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("pocketmq",)
RETRIES = 3
GROWN_EVERY = 256
"""One of this many inputs is grown by repeating a part, to find cost that grows faster than size."""
GROWN_SIZES = (4_096, 16_384, 65_536)
MEMORY_EVERY = 8192
MEMORY_GROWTH_MAX = 192 << 20
"""Allowed growth of a target's resident memory after its first inputs, in bytes."""
WARM_UP = 4096

One = Callable[[bytes], None]
Grow = Callable[[bytes, int, random.Random], bytes]
Mutate = Callable[[random.Random, bytes], bytes]


class Wrong(AssertionError):
    """A check by a target itself has failed."""


def grow_bytes(data: bytes, size: int, rng: random.Random) -> bytes:
    """Return `data` with a part repeated, up to `size` bytes."""
    if not data:
        return data
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 1, 2, 2, 3, 4, 8, 32, 200)))
    piece = data[start:end]
    return data[:start] + piece * ((size - len(data)) // len(piece) + 1) + data[end:]


def mutate_nothing(rng: random.Random, data: bytes) -> bytes:
    return data


class Target(NamedTuple):
    """Code to fuzz.

    `prepare` is called once in the fuzzing process and returns the function that processes an input. `expected` are the
    exceptions declared by its code. An input may take `base_ms` and `ns_per_byte` of CPU time. `weight` is the share of a
    long run. After `inputs_per_process` another process continues, because instrumented code uses more and more memory of
    the fuzzer. The memory of such a target is checked without instrumentation (test_fuzz_targets).
    """

    name: str
    prepare: Callable[[], One]
    seeds: Callable[[], list[bytes]]
    expected: tuple[type[BaseException], ...] = ()
    mutate: Mutate = mutate_nothing
    grow: Grow = grow_bytes
    grown_sizes: tuple[int, ...] = GROWN_SIZES
    ns_per_byte: int = 2_000
    base_ms: int = 50
    size_max: int = 2_048
    weight: float = 1.0
    inputs_per_process: int | None = None


class Finding(NamedTuple):
    target: str
    kind: str  # exception, cost, memory
    what: str
    place: str
    size: int
    input: str  # file in the folder of findings


class Watch:
    """Calls a target's function for each input and records findings in `folder`."""

    def __init__(self, target: Target, folder: Path, count: Callable[[int], None] = lambda inputs: None) -> None:
        self.target = target
        self.inputs = 0
        self.findings = {(row.kind, row.place): row for row in read_findings(folder)}
        self._folder = folder
        self._count = count
        self._one = target.prepare()
        self._memory_at_first = 0
        self._base_ns = target.base_ms * 1_000_000

    def __call__(self, data: bytes) -> None:
        self.inputs = inputs = self.inputs + 1
        self._watched(data)
        if inputs % GROWN_EVERY == 1:
            self._grown(data)
        if inputs % 64 == 0:
            self._count(inputs)
            if inputs == WARM_UP:
                self._memory_at_first = resident_size()
            elif inputs % MEMORY_EVERY == 0 and self.target.inputs_per_process is None:
                self._check_memory(data)

    def grown_each_way(self, data: bytes, ways: int) -> None:
        """Grow an input at several places."""
        for number in range(ways):
            self._grown(data, number)

    def _watched(self, data: bytes) -> bool:
        """Run the input; return whether it stayed within its cost."""
        start = time.thread_time_ns()
        try:
            self._one(data)
        except self.target.expected:
            pass
        except Exception as error:
            self._found("exception", described(error), place_of(error), data)
        elapsed = time.thread_time_ns() - start
        allowed = self._base_ns + self.target.ns_per_byte * len(data)
        if elapsed <= allowed:
            return True
        for _ in range(RETRIES):
            elapsed = min(elapsed, self._timed(data))
            if elapsed <= allowed:
                return True
        what = f"{elapsed / 1e6:.0f} ms of CPU time for {len(data)} bytes; {allowed / 1e6:.0f} ms are allowed"
        self._found("cost", what, self.target.name, data)
        return False

    def _timed(self, data: bytes) -> int:
        start = time.thread_time_ns()
        with contextlib.suppress(Exception):  # recorded in the first run
            self._one(data)
        return time.thread_time_ns() - start

    def _grown(self, data: bytes, way: int = 0) -> None:
        rng = random.Random(zlib.crc32(data) + way)
        state = rng.getstate()
        for size in self.target.grown_sizes:
            rng.setstate(state)
            if len(data) < size and not self._watched(self.target.grow(data, size, rng)):
                return  # the next size, four times larger, could take sixteen times as long

    def _check_memory(self, data: bytes) -> None:
        grown = resident_size() - self._memory_at_first
        if self._memory_at_first and grown > MEMORY_GROWTH_MAX:
            what = f"{grown >> 20} MiB more after {self.inputs} inputs than after {WARM_UP}"
            self._found("memory", what, self.target.name, data)

    def _found(self, kind: str, what: str, place: str, data: bytes) -> None:
        known = self.findings.get((kind, place))
        if known is not None and known.size <= len(data):
            return
        name = f"{self.target.name}-{kind}-{zlib.crc32(place.encode()):08x}"
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{name}.bin").write_bytes(data)
        self.findings[kind, place] = Finding(self.target.name, kind, what, place, len(data), f"{name}.bin")
        rows = [finding._asdict() for finding in self.findings.values()]
        (self._folder / f"{self.target.name}.json").write_text(json.dumps(rows, indent=1))


def read_findings(folder: Path) -> list[Finding]:
    return [Finding(**row) for path in sorted(folder.glob("*.json")) for row in json.loads(path.read_text())]


def described(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


def place_of(error: BaseException) -> str:
    """Return `file:line` of the innermost frame in PocketMQ's code, of the first cause, and the exception's type."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(tuple(f"{ROOT}/{name}/" for name in PACKAGES))]
    frame: Any = (ours or frames)[-1]
    path = Path(frame.filename)
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    return f"{name}:{frame.lineno} {type(error).__name__}"


def resident_size() -> int:
    """Return the resident size of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
