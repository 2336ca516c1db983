"""Damage matrix of a small store: each file deleted, emptied or truncated, each bit flipped.

`Matrix` creates the store in two states (stopped cleanly, and killed); `case` starts a broker on a damaged copy and returns
the problems. A broker must start, or name the file in its refusal; it must deliver every message outside the damaged bytes,
and log each changed table and each lost structure.

As a program: `make damage DAMAGE_ARGS="--every"`.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pocketmq.broker.broker import Broker
from pocketmq.runtime.clock import VirtualClock
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.disk import Disk, StoreError
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.record import bounds
from pocketmq.store.queue.consume_queue import BrokenQueueError
from tests.broker.running import connected
from tests.broker.small_store import (
    BODIES,
    CANCELLED,
    GROUP,
    OPEN,
    PLAIN,
    POP_GROUP,
    POPPED,
    READ,
    TOPICS,
    Stuck,
    let_all_be_delivered,
    make_store,
    opened,
    read_all,
)

CLEAN, KILLED = "clean", "killed"
WAYS = ("deleted", "emptied", "halved")
_PAGE = 4096
# Files that a broker can replace: without them its start does more work, but it has the same messages and tables afterwards.
HINTS = (
    "checkpoint", "cleanStop.json", "abort", "lock", "timerwheel", "config/levelmark", "config/timermark",
    "config/timercheck",
)  # fmt: skip
_LARGE = ("commitlog/", "consumequeue/", "index/", "timerlog/", "timerwheel")


class Content(NamedTuple):
    """Content of a file: its size, and its pages that are not all zeros."""

    size: int
    pages: tuple[tuple[int, bytes], ...]

    @classmethod
    def of(cls, data: bytes) -> "Content":
        starts = range(0, len(data), _PAGE)
        return cls(len(data), tuple((at, page) for at in starts if (page := data[at : at + _PAGE]).strip(b"\0")))

    def whole(self) -> bytes:
        data = bytearray(self.size)
        for at, page in self.pages:
            data[at : at + len(page)] = page
        return bytes(data)

    @property
    def used(self) -> int:
        """Return the size up to the last non-zero byte."""
        return max((at + len(page.rstrip(b"\0")) for at, page in self.pages), default=0)

    def bytes_in_use(self, step: int) -> Iterator[int]:
        """Return each `step`th position up to a little beyond the last non-zero byte of each page."""
        for at, page in self.pages:
            yield from range(at, min(at + len(page.rstrip(b"\0")) + 16, self.size), step)


Files = dict[str, Content]
"""Contents of files by path under the store's root."""


class Damage(NamedTuple):
    """Damage of one file; `how` is one of WAYS, or the number of the flipped bit."""

    state: str
    file: str
    how: str | int

    def __str__(self) -> str:
        what = f"bit {self.how % 8} of byte {self.how // 8} flipped" if isinstance(self.how, int) else self.how
        return f"{self.state} stop, {self.file} {what}"

    def of(self, content: Content) -> Content | None:
        if self.how == "deleted":
            return None
        if self.how == "emptied":
            return Content(0, ())
        data = bytearray(content.whole())
        if isinstance(self.how, int):
            data[self.how // 8] ^= 1 << self.how % 8
        else:
            del data[len(data) // 2 :]
        return Content.of(bytes(data))


class State(NamedTuple):
    """The tables of a broker and the messages that it delivers."""

    tables: dict[str, Any]
    found: dict[str, int]  # body -> how often it is read
    by_key: frozenset[str]
    lines: tuple[str, ...]  # warnings


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if record.exc_info and not isinstance(record.exc_info[1], BrokenQueueError):  # reported by the pull's answer
            self.failures.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextlib.contextmanager
def _listening() -> Iterator[_Lines]:
    handler, root = _Lines(), logging.getLogger()
    others, root.handlers[:] = root.handlers[:], [handler]
    try:
        yield handler
    finally:
        root.handlers[:] = others


class Matrix:
    """The store in both states. If `in_memory`, damaged copies are on a MemoryDisk, which is faster, else in a folder."""

    def __init__(self, in_memory: bool = True) -> None:
        self.in_memory = in_memory
        self.files: dict[str, Files] = {}
        self.normal: dict[str, State] = {}
        self.now_ms = 0
        self._folder = Path(tempfile.mkdtemp(prefix="damage-"))
        self._bodies_at: list[tuple[int, int, str]] = []

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    async def make(self) -> None:
        disk, root = (MemoryDisk(), "/store") if self.in_memory else (FileDisk(), str(self._folder / "made"))
        clock = VirtualClock()

        def killed() -> None:
            self.files[KILLED] = _files(disk, root)

        await make_store(disk, root, clock, killed)
        self.files[CLEAN] = _files(disk, root)
        self.now_ms = clock.message_time_ms()
        self._bodies_at = list(_bodies_in(self.files[KILLED]))
        for state in (CLEAN, KILLED):
            self.normal[state], failures = await self._lived(self.files[state])
            missing = [body for body in BODIES if body not in self.normal[state].found]
            assert not missing and not failures, f"an undamaged store: {missing} missing, {failures}"

    async def case(self, damage: Damage) -> list[str]:
        """Return what is wrong after this damage; empty if nothing is."""
        files = dict(self.files[damage.state])
        content = damage.of(files[damage.file])
        if content is None:
            del files[damage.file]
        else:
            files[damage.file] = content
        try:
            state, problems = await self._lived(files)
        except (StartError, StoreError) as error:
            is_named = _stem(damage.file) in str(error) or Path(damage.file).parent.name in str(error)
            return [] if is_named else [f"refuses without naming the file: {error}"]
        except (Stuck, TimeoutError) as error:
            return [f"stuck: {error}"]
        except Exception as error:
            return [f"fails at {_place(error)}: {type(error).__name__}: {error}"]
        return [*problems, *self._differences(damage, state)]

    def _differences(self, damage: Damage, state: State) -> Iterator[str]:
        normal = self.normal[damage.state]
        new_lines = [line for line in state.lines if line not in normal.lines]
        is_told = self._is_told(damage, new_lines)
        hit = set(self._hit(damage))
        lost = [body for body in BODIES if body not in state.found and body not in hit]
        if lost:
            yield f"lost{'' if is_told else ' in silence'}: {', '.join(lost)}"
        unkeyed = sorted(normal.by_key - state.by_key - hit)
        # An index entry has no checksum: a flipped bit makes it point elsewhere. Its message is still found by queue and id.
        if unkeyed and not (isinstance(damage.how, int) and damage.file.startswith("index/")):
            yield f"not found by key{'' if is_told else ', in silence'}: {', '.join(unkeyed)}"
        if is_told:
            return
        if CANCELLED in state.found:
            yield "a cancelled message is delivered in silence"
        twice = [body for body, count in state.found.items() if count > normal.found.get(body, count) and body not in hit]
        if twice:
            yield f"delivered again in silence: {', '.join(twice)}"
        for name, rows in state.tables.items():
            if rows != normal.tables[name]:
                yield f"{name} in silence: {_difference(normal.tables[name], rows)}"
        # No checksum covers a record's topic and properties, and after a clean stop the log is not read.
        if isinstance(damage.how, str) and any(body not in state.found for body in hit):
            yield f"a damaged message is gone in silence: {', '.join(sorted(hit))}"
        if isinstance(damage.how, str) and self._must_be_told(damage):
            yield "not named in the log"

    def _must_be_told(self, damage: Damage) -> bool:
        """Whether user data was in the lost part, so that the loss must be logged."""
        content = self.files[damage.state][damage.file]
        is_whole = damage.how == "halved" and content.used <= content.size // 2 and damage.file.startswith(_LARGE)
        return not (damage.file in HINTS or damage.file.endswith(".bak") or not content.used) and (
            not is_whole or damage.file.startswith("commitlog/")
        )

    @staticmethod
    def _is_told(damage: Damage, lines: Iterable[str]) -> bool:
        """Whether a log line names the file or its content."""
        if damage.file.startswith(_LARGE):
            return any(True for _ in lines)
        return any(_stem(damage.file) in line for line in lines)

    def _hit(self, damage: Damage) -> Iterator[str]:
        """Yield the bodies of which a record overlaps the damaged bytes."""
        if not damage.file.startswith("commitlog/"):
            return
        content = self.files[damage.state][damage.file]
        start = int(damage.file.rpartition("/")[2])
        first, last = start, start + content.size
        if damage.how == "halved":
            first += content.size // 2
        elif isinstance(damage.how, int):
            first = start + damage.how // 8
            last = first + 1
        for begin, end, body in self._bodies_at:
            if begin < last and end > first:
                yield body

    async def _lived(self, files: Files) -> tuple[State, list[str]]:
        """Start a broker on `files`, let everything become due and read all; return its state and the failures."""
        root = "/store" if self.in_memory else str(self._folder / "made")
        disk = _disk_of(files, None if self.in_memory else Path(root))
        clock = VirtualClock(self.now_ms)
        with _listening() as log:
            async with opened(disk, root, clock) as broker, connected() as client:
                tables = _tables(broker)
                await let_all_be_delivered(broker, clock)
                found: dict[str, int] = {}
                problems = []
                for topic in READ:
                    try:
                        bodies = await read_all(client, broker, topic)
                    except AssertionError as error:
                        problems.append(str(error))
                        continue
                    for body in bodies:
                        found[body] = found.get(body, 0) + 1
                keys = frozenset(body for body in PLAIN if _by_key(broker, body))
            return State(tables, found, keys, tuple(log.lines)), problems + [
                f"a failure is logged: {one}" for one in log.failures
            ]

    # --- choice of damages ------------------------------------------------------------------------------------------

    def every(self) -> Iterator[Damage]:
        """Yield each file damaged in each of WAYS, and each bit of the small files flipped.

        In logs, queues, index and timer wheel, and in documents (whose bits `document_failures` covers), only the bits of
        each 32nd used byte are flipped.
        """
        for state, files in self.files.items():
            for file, content in files.items():
                yield from (Damage(state, file, how) for how in WAYS)
                is_sparse = file.startswith(_LARGE) or _is_document(file) or file.endswith(".bak")
                for byte in content.bytes_in_use(32 if is_sparse else 1):
                    yield from (Damage(state, file, byte * 8 + bit) for bit in range(8))

    def document_failures(self, part: int = 0, parts: int = 1) -> Iterator[str | None]:
        """Flip each bit of each document of `config/` and read it as a broker does; yield the problem, or None.

        Only `ConfigFile` reads a document: with equal rows and a log line the broker behaves as on the undamaged store. A
        `.bak` is read when the file itself is missing.
        """
        documents = [
            (f"{state} stop, {file}", content)
            for state, files in self.files.items() for file, content in files.items() if _is_document(file)
        ]  # fmt: skip
        for label, content in documents:
            data = content.whole()
            name = label.rpartition("/")[2]
            normal = _document_in(name, data)[0]
            for bit in range(part, len(data) * 8, parts):
                changed = bytearray(data)
                changed[bit // 8] ^= 1 << bit % 8
                yield self._document_problem(f"{label} bit {bit % 8} of byte {bit // 8} flipped", name, changed, normal)

    @staticmethod
    def _document_problem(label: str, name: str, data: bytes, normal: dict[str, Any]) -> str | None:
        try:
            found, lines = _document_in(name, data)
        except Exception as error:
            return f"{label}: {type(error).__name__}: {error}"
        if found != normal:
            return f"{label}: {_difference(normal, found)}"
        return None if any(_stem(name) in line for line in lines) else f"{label}: not named in the log"

    def sample(self, seed: int, count: int) -> list[Damage]:
        """Return each file (of the queues only some) in each of WAYS, and `count` flipped bits, the same number per file."""
        rng = random.Random(seed)
        ways = [one for one in self.every() if isinstance(one.how, str) and not _is_like_others(one.file)]
        flips: dict[tuple[str, str], list[Damage]] = {}
        for one in self.every():
            if isinstance(one.how, int) and not _is_like_others(one.file):
                flips.setdefault((one.state, one.file), []).append(one)
        each = max(1, count // len(flips))
        return ways + [one for rows in flips.values() for one in rng.sample(rows, min(each, len(rows)))]


def _is_document(file: str) -> bool:
    """Whether the file is a table of `config/`, or its `.bak`."""
    return file.startswith("config/") and file.removesuffix(".bak").endswith(".json")


def _document_in(name: str, data: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return the document of a file of `config/` as a broker reads it, and the warnings logged for it.

    Raises StoreError when it cannot be read.
    """
    disk = MemoryDisk()
    disk.write_file(f"/config/{name}", bytes(data))
    with _listening() as log:
        return ConfigFile(disk, f"/config/{name.removesuffix('.bak')}").load(), log.lines


def _is_like_others(file: str) -> bool:
    """Whether this is a queue file whose damage is tested on an equivalent queue."""
    return file.startswith("consumequeue/") and not re.match(
        "consumequeue/(T1/0|T/0|SCHEDULE_TOPIC_XXXX/4|rmq_sys_wheel_timer/0|RMQ_SYS_TRANS_HALF_TOPIC/0)/", file
    )


def _stem(file: str) -> str:
    """Return the part of a file's name that a log line must contain: the name without endings."""
    return file.rpartition("/")[2].removesuffix(".bak").removesuffix(".json")


def _files(disk: Disk, root: str, under: str = "") -> Files:
    found: Files = {}
    for name in disk.listdir(root + under):
        path = f"{under}/{name}"
        if disk.is_dir(root + path):
            found |= _files(disk, root, path)
        else:
            found[path[1:]] = Content.of(disk.read_file(root + path))
    return found


def _disk_of(files: Files, folder: Path | None) -> Disk:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        for file, content in files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb", buffering=0) as written:
                written.truncate(content.size)
                for at, page in content.pages:
                    os.pwrite(written.fileno(), page, at)
        return FileDisk()
    disk = MemoryDisk()
    for file, content in files.items():
        region = disk.map(f"/store/{file}", content.size, create=True)
        for at, page in content.pages:
            region.view[at : at + len(page)] = page
    return disk


def _bodies_in(files: Files) -> Iterator[tuple[int, int, str]]:
    """Return (begin, end, body) of each record of the log with one of the test's bodies; physical offsets."""
    for file, content in files.items():
        if not file.startswith("commitlog/"):
            continue
        start, data, at = int(file.rpartition("/")[2]), content.whole(), 0
        while at < content.size:
            try:
                size, body_start, topic_start, _ = bounds(memoryview(data), at)
            except Exception:
                break
            text = data[at : at + size]
            for body in (*BODIES, OPEN):
                if (
                    re.search(rb"(?<![\w-])" + body.encode() + rb"(?![\w-])", text[body_start - at :])
                    or f"U-{body}\2".encode() in text
                ):
                    yield start + at, start + at + size, body
            # A check point or an acknowledgement record covers all popped messages.
            if b"rmq_sys_REVIVE_LOG" in text or b"pop-" in text[body_start - at : topic_start - at]:
                yield from ((start + at, start + at + size, body) for body in BODIES if body.startswith("pop-"))
            at += size


def _tables(broker: Broker) -> dict[str, Any]:
    services = broker.services
    return {
        "topics": {name: config for name, config in services.topics.table.items() if name in (*TOPICS, POPPED)},
        "groups": {name: config for name, config in services.groups.table.items() if name in (GROUP, POP_GROUP)},
        "consumer offsets": {
            key: dict(queues)
            for key, queues in services.offsets.table.items()
            if key in (f"{TOPICS[0]}@{GROUP}", f"{POPPED}@{POP_GROUP}")
        },
        "filters": sorted(
            (name, group) for name, table in services.filters.encode().get("filterDataByTopic", {}).items()
            for group in table.get("groupFilterData", {})
        ),
    }  # fmt: skip


def _by_key(broker: Broker, body: str) -> bool:
    result = broker.services.store.query_message(TOPICS[PLAIN.index(body) % 3], f"k-{body}", 32, 0, 1 << 62)
    return any(body.encode() in bytes(view) for view in result.views)


def _difference(before: Any, after: Any) -> str:
    if not isinstance(before, dict):
        return f"{before} is {after} now"
    rows = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old != new and isinstance(old, msgspec.Struct) and isinstance(new, msgspec.Struct):
            fields = [field for field in old.__struct_fields__ if getattr(old, field) != getattr(new, field)]
            rows += [f"{name}.{field}: {getattr(old, field)} is {getattr(new, field)} now" for field in fields]
        elif old != new:
            rows.append(f"{name} is {'gone' if new is None else new}")
    return ", ".join(rows)


def _place(error: BaseException) -> str:
    """Return the innermost line of PocketMQ's code in the traceback."""
    root = Path(__file__).parents[2]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(root))]
    ours = [frame for frame in frames if "/tests/" not in frame.filename] or frames
    return " < ".join(f"{Path(frame.filename).relative_to(root)}:{frame.lineno}" for frame in reversed(ours[-3:]))


async def failures_of(matrix: Matrix, damages: Iterable[Damage]) -> list[str]:
    """Return a line for each damage after which something is wrong."""
    return [f"{damage}: {problem}" for damage in damages for problem in await matrix.case(damage)]


# --- as a program -----------------------------------------------------------------------------------------------------


def _grouped(lines: Iterable[str]) -> list[str]:
    """Merge lines that differ in bit and byte only into one with their count."""
    groups: dict[str, list[str]] = {}
    for line in lines:
        groups.setdefault(
            re.sub(r"bit \d of byte \d+ flipped", "a bit flipped", re.sub(r"\d{4,}", "N", line))[:230], []
        ).append(line)
    return [f"{len(rows)} x {key}" if len(rows) > 1 else rows[0] for key, rows in groups.items()]


async def _run(asked: argparse.Namespace, part: int) -> list[str]:
    from rich.progress import track

    matrix = Matrix(in_memory=not asked.folder)
    await matrix.make()
    try:
        damages = list(matrix.every()) if asked.every else matrix.sample(asked.seed, asked.flips)
        wanted = [one for one in damages if asked.files in f"{one.state} {one.file}"][part :: asked.processes]
        if asked.documents:
            wanted = []
        if asked.seconds:
            random.Random(asked.seed).shuffle(wanted)  # an early end then still covers all files
        lines, done, end_s = [], 0, time.monotonic() + (asked.seconds or float("inf"))
        for damage in track(wanted, "damage", disable=part > 0 or asked.plain):
            found = [f"{damage}: {problem}" for problem in await matrix.case(damage)]
            if found and asked.plain:
                print("\n".join(found), file=sys.stderr, flush=True)
            lines += found
            done += 1
            if time.monotonic() > end_s:
                break
        if asked.documents:
            walked = track(matrix.document_failures(part, asked.processes), "documents", disable=part > 0 or asked.plain)
            for problem in walked:
                done += 1
                lines += [problem] if problem else []
            return [f"{done} {done}", *lines]
        return [f"{done} {len(wanted)}", *lines]
    finally:
        matrix.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Start a broker on a store with each of its files damaged.")
    parser.add_argument("--every", action="store_true", help="every bit of the small files (an hour or more)")
    parser.add_argument("--documents", action="store_true", help="only every bit of config/*.json, read without a broker")
    parser.add_argument("--flips", type=int, default=500, help="without --every: the number of flipped bits")
    parser.add_argument("--files", default="", help="only files whose state and path contain this")
    parser.add_argument("--folder", action="store_true", help="copies in a folder, not in memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time and report what is done")
    parser.add_argument("--plain", action="store_true", help="no progress bar; problems to stderr as they are found")
    asked = parser.parse_args()
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(asked.processes) as pool:
        parts = list(pool.map(_run_part, [(asked, part) for part in range(asked.processes)]))
    failures = [line for _, *lines in parts for line in lines]
    print("\n".join(_grouped(sorted(failures))))
    done, wanted = (sum(int(counts.split()[at]) for counts, *_ in parts) for at in (0, 1))
    print(f"{done:,} of {wanted:,} damages, {len(failures):,} problems")
    return 1 if failures else 0


def _run_part(asked_part: tuple[argparse.Namespace, int]) -> list[str]:
    return asyncio.run(_run(*asked_part))


if __name__ == "__main__":
    sys.exit(main())
