"""Soak test: a store is written while Spark streams it and is killed (-9) now and then; each row must be in the sink once.

    python -m tests.spark_analytics.stream_soak 1000000 [--kills 3] [--folder DIR] [--reader python|jvm]

Runs two further processes: the writer, which is told how many messages to put next, and the follower, a local Spark with a
Parquet sink and a checkpoint, killed with its JVM as soon as it has committed some micro-batches of the current messages.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
DEADLINE_S = 600
PUT_AT_ONCE = 200
TOPICS = [f"Topic{number}" for number in range(8)]


@dataclass(frozen=True)
class SoakResult:
    """Result: `rows` in the sink, `distinct` keys among them, and `missing` keys."""

    kills: int
    rows: int
    distinct: int
    missing: int
    batches: int
    files: int
    seconds: float
    log_bytes: int


# --- the writer -----------------------------------------------------------------------------------------------------


def write(folder: str, file_size: int, per_second: int) -> None:
    """For each line of standard input, put that many messages at a given rate, and report completion."""
    from pocketmq.runtime.clock import SystemClock
    from pocketmq.store.config import MessageStoreConfig
    from pocketmq.store.disk.file_disk import FileDisk
    from pocketmq.store.format.message import Message
    from pocketmq.store.format.properties import encode_properties
    from pocketmq.store.message_store import MessageStore

    store = MessageStore(
        MessageStoreConfig(store_path_root_dir=folder, mapped_file_size_commit_log=file_size, message_index_enable=False),
        FileDisk(),
        SystemClock(),
    )
    store.load()
    store.start()
    print("ready", flush=True)
    number = 0
    for line in sys.stdin:
        begin, end, done = time.monotonic(), number + int(line), 0
        while number < end:
            for _ in range(min(PUT_AT_ONCE, end - number)):
                properties = {"KEYS": str(number), "TAGS": "soak"}
                body = b"%d" % number * (1 + number % 29)
                stored = encode_properties(properties).encode()
                topic = TOPICS[number % len(TOPICS)]
                store.commit_log.put(
                    Message(topic, number % 3, body, HOST, HOST, properties=properties, properties_bytes=stored)
                )
                number, done = number + 1, done + 1
            store.dispatch()
            time.sleep(max(begin + done / per_second - time.monotonic(), 0))
        print(store.max_physical_offset, flush=True)
    store.shutdown()


# --- the follower ---------------------------------------------------------------------------------------------------


def follow(store: str, work: str, bytes_per_trigger: str, until_done: bool, reader: str) -> None:
    """Stream until killed; with `until_done`, only the records that exist now."""
    from pocketmq.spark_analytics.session import local_session

    # Most of the time goes into starting, so compilation does not pay off for a few micro-batches.
    quick = {"spark_sql_codegen_wholeStage": "false", "spark_sql_codegen_factoryMode": "NO_CODEGEN"}
    spark = local_session("local[1]", reader, spark_sql_shuffle_partitions="1", **quick)
    stream = spark.readStream.format("rocketmq").schema("topic string, physicalOffset bigint, keys string, body binary")
    stream = stream.option("maxBytesPerTrigger", bytes_per_trigger).load(store)
    sink = stream.writeStream.format("parquet").option("checkpointLocation", f"{work}/checkpoint")
    trigger: dict[str, Any] = {"availableNow": True} if until_done else {"processingTime": "100 milliseconds"}
    query = sink.trigger(**trigger).start(f"{work}/sink")
    Path(work, f"following.{os.getpid()}").touch()
    query.awaitTermination()
    spark.stop()


class Follower:
    """The follower's process and its child processes."""

    def __init__(self, store: Path, work: Path, bytes_per_trigger: str, reader: str, until_done: bool = False) -> None:
        self._work = work
        self._log = work / "follower.log"
        arguments = [__file__, "follow", store, work, bytes_per_trigger, "now" if until_done else "on", reader]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *map(str, arguments)], stderr=log, start_new_session=True)
        self._begun = committed(work)

    def wait_for_start(self) -> None:
        """Wait until its query runs. Raises RuntimeError."""
        self._wait_until(lambda: (self._work / f"following.{self.process.pid}").exists())

    def wait_for_batches(self, count: int) -> None:
        """Wait until it has committed `count` micro-batches. Raises RuntimeError."""
        self._wait_until(lambda: committed(self._work) >= self._begun + count)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the follower has ended or makes no progress:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill Python, JVM and workers, and wait until no process is left that could still write."""
        for pid in self._session():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        while self._session():
            time.sleep(0.01)

    def _session(self) -> list[int]:
        """Return the processes of the follower's session."""
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid and fields[0] != "Z":
                found.append(int(name))
        return found

    def wait(self) -> None:
        """Wait for its end. Raises RuntimeError if it failed."""
        if self.process.wait(DEADLINE_S) != 0:
            raise RuntimeError(f"the follower failed:\n{self._log.read_text()[-4000:]}")


def committed(work: Path) -> int:
    """Return the number of micro-batches in the sink."""
    folder = work / "sink" / "_spark_metadata"
    return sum(name.split(".")[0].isdecimal() for name in os.listdir(folder)) if folder.is_dir() else 0


# --- soak test ------------------------------------------------------------------------------------------------------


def soak(
    folder: Path,
    messages: int,
    kills: int = 3,
    *,
    file_size: int,
    bytes_per_trigger: str,
    per_second: int = 20_000,
    reader: str = "python",
) -> SoakResult:
    """Write, stream and kill; then let the follower finish, and check the sink."""
    store, work = folder / "store", folder / "work"
    work.mkdir(parents=True)
    begun = time.monotonic()
    writer = subprocess.Popen(
        [sys.executable, __file__, "write", str(store), str(file_size), str(per_second)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None and writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    portions = [messages // (kills + 1)] * kills
    followers: list[Follower] = []
    try:
        for count in portions:
            follower = Follower(store, work, bytes_per_trigger, reader)
            followers.append(follower)
            follower.wait_for_start()
            print(count, file=writer.stdin, flush=True)
            follower.wait_for_batches(2)
            follower.kill()
            writer.stdout.readline()
        print(messages - sum(portions), file=writer.stdin, flush=True)
        end = int(writer.stdout.readline())
        followers.append(Follower(store, work, "1g", reader, until_done=True))
        followers[-1].wait()
    finally:
        for follower in followers:
            follower.kill()
        writer.stdin.close()
        writer.wait(60)
    seconds = time.monotonic() - begun
    return sink_result(work, messages, kills, seconds, end)


def sink_result(work: Path, messages: int, kills: int, seconds: float, log_bytes: int) -> SoakResult:
    """Read the files listed by the sink; killed tasks may have left others."""
    import json

    names: set[str] = set()
    metadata = work / "sink" / "_spark_metadata"
    batches = sorted((path for path in metadata.iterdir() if path.name.split(".")[0].isdecimal()), key=_batch_number)
    compacted = [path for path in batches if path.name.endswith(".compact")]
    first = _batch_number(compacted[-1]) if compacted else 0
    for path in batches:
        if path in compacted[-1:] or (_batch_number(path) >= first and not path.name.endswith(".compact")):
            names |= {json.loads(line)["path"] for line in path.read_text().splitlines()[1:] if line}
    keys = [pq.read_table(name.removeprefix("file://"), columns=["keys"])["keys"] for name in sorted(names)]
    rows = sum(map(len, keys))
    distinct = set().union(*(pc.unique(column).to_pylist() for column in keys))
    missing = messages - len(distinct & {str(number) for number in range(messages)})
    return SoakResult(kills, rows, len(distinct), missing, len(batches), len(names), seconds, log_bytes)


def _batch_number(path: Path) -> int:
    return int(path.name.split(".")[0])


def main() -> None:
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    if sys.argv[1] == "follow":
        follow(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5] == "now", sys.argv[6])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("messages", type=int)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--file-size", type=int, default=64 << 20)
    parser.add_argument("--bytes-per-trigger", default="4m")
    parser.add_argument("--per-second", type=int, default=20_000)
    parser.add_argument("--reader", choices=("python", "jvm"), default="python")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        result = soak(
            Path(folder),
            asked.messages,
            asked.kills,
            file_size=asked.file_size,
            bytes_per_trigger=asked.bytes_per_trigger,
            per_second=asked.per_second,
            reader=asked.reader,
        )
    print(result)
    sys.exit(0 if (result.rows, result.distinct, result.missing) == (asked.messages, asked.messages, 0) else 1)


if __name__ == "__main__":
    main()
