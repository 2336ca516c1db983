"""Soak test: Spark streams the store of a running broker and is killed (-9) repeatedly; each row must be in the sink once.

    python -m tests.spark_analytics.stream_soak 1000000 [--kills 3] [--folder DIR] [--reader python|jvm|both]

Runs a name server, a broker, a sender, which reads from its standard input how many messages to send next, and a follower
for each reader: a local Spark with a Parquet sink and a checkpoint. A follower is killed with its JVM as soon as it has
committed some micro-batches of the current messages. The followers run at the same time.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DEADLINE_S = 600
TOPICS = [f"Topic{number}" for number in range(8)]
SENT_AT_ONCE: Final = 16
SINGLE_EVERY: Final = 4
"""One of this many portions is sent as single messages, the others as batches."""
SENDING_MAX: Final = 8


@dataclass(frozen=True)
class SoakResult:
    """Result of a reader: `rows` in its sink, `distinct` keys among them, `records` (distinct positions), `missing` keys."""

    kills: int
    rows: int
    distinct: int
    records: int
    missing: int
    batches: int
    files: int
    seconds: float


# --- the sender -----------------------------------------------------------------------------------------------------


async def send(namesrv: str, per_second: int) -> None:
    """For each line of standard input, send that many messages at a given rate, and report completion."""
    from pocketmq.client.producer import Producer

    async with Producer(namesrv, "soak") as producer:
        for topic in TOPICS:
            await producer.create_topic(topic)
        print("ready", flush=True)
        number = 0
        while line := await asyncio.to_thread(sys.stdin.readline):
            number = await _send_portion(producer, number, int(line), per_second)
            print(number, flush=True)


async def _send_portion(producer: Any, begin: int, count: int, per_second: int) -> int:
    """Send messages with the keys `begin` to `begin + count`; return the end."""
    begun, end = time.monotonic(), begin + count
    free = asyncio.Semaphore(SENDING_MAX)

    async def send_some(first: int, last: int) -> None:
        from pocketmq.client.message import Message

        async with free:
            portion = first // SENT_AT_ONCE
            topic = TOPICS[portion % len(TOPICS)]
            keys = range(first, last)
            messages = [Message(topic, b"%d" % key * (1 + key % 29), "soak", str(key)) for key in keys]
            if portion % SINGLE_EVERY:
                await producer.send_batch(messages, timeout_s=DEADLINE_S)
            else:
                await asyncio.gather(*(producer.send(message, timeout_s=DEADLINE_S) for message in messages))

    async with asyncio.TaskGroup() as sends:
        for first in range(begin, end, SENT_AT_ONCE):
            sends.create_task(send_some(first, min(first + SENT_AT_ONCE, end)))
            await asyncio.sleep(max(begun + (first - begin) / per_second - time.monotonic(), 0))
            async with free:  # create the next task only when one can send
                pass
    return end


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
    readers: tuple[str, ...] = ("python",),
) -> dict[str, SoakResult]:
    """Send, stream and kill; then let the followers finish, and check the sinks. Returns the result of each reader."""
    from pocketmq.cli.cluster import Layout, ProcessCluster

    begun = time.monotonic()
    works = {reader: folder / reader for reader in readers}
    for work in works.values():
        work.mkdir(parents=True)
    settings = {"mappedFileSizeCommitLog": str(file_size), "messageIndexEnable": "false"}
    with ProcessCluster(folder / "cluster", Layout(1, 0), settings=settings) as cluster:
        command = [sys.executable, __file__, "send", cluster.namesrv_address, str(per_second)]
        sender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            _follow_and_kill(sender, cluster.masters[0].store, works, messages, kills, bytes_per_trigger)
        finally:
            sender.kill()
            sender.wait()
    seconds = time.monotonic() - begun
    return {reader: sink_result(work, messages, kills, seconds) for reader, work in works.items()}


def _follow_and_kill(
    sender: "subprocess.Popen[str]", store: Path, works: dict[str, Path], messages: int, kills: int, bytes_per_trigger: str
) -> None:
    assert sender.stdin is not None and sender.stdout is not None
    assert sender.stdout.readline() == "ready\n"
    print(1, file=sender.stdin, flush=True)  # a broker creates its log with the first message
    assert sender.stdout.readline() == "1\n"
    count = (messages - 1) // (kills + 1)
    followers: list[Follower] = []
    try:
        for _ in range(kills):
            running = [Follower(store, work, bytes_per_trigger, reader) for reader, work in works.items()]
            followers += running
            for follower in running:
                follower.wait_for_start()
            print(count, file=sender.stdin, flush=True)
            for follower in running:
                follower.wait_for_batches(2)
                follower.kill()
            assert sender.stdout.readline(), "the sender has failed"
        print(messages - 1 - kills * count, file=sender.stdin, flush=True)
        assert sender.stdout.readline() == f"{messages}\n"
        last = [Follower(store, work, "1g", reader, until_done=True) for reader, work in works.items()]
        followers += last
        for follower in last:
            follower.wait()
    finally:
        for follower in followers:
            follower.kill()


def sink_result(work: Path, messages: int, kills: int, seconds: float) -> SoakResult:
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
    tables = [pq.read_table(name.removeprefix("file://"), columns=["keys", "physicalOffset"]) for name in sorted(names)]
    sink = pa.concat_tables(tables)
    distinct = set(pc.unique(sink["keys"]).to_pylist())
    records = len(pc.unique(sink["physicalOffset"]))
    missing = messages - len(distinct & {str(number) for number in range(messages)})
    return SoakResult(kills, len(sink), len(distinct), records, missing, len(batches), len(names), seconds)


def _batch_number(path: Path) -> int:
    return int(path.name.split(".")[0])


def main() -> None:
    if sys.argv[1] == "send":
        asyncio.run(send(sys.argv[2], int(sys.argv[3])))
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
    parser.add_argument("--reader", choices=("python", "jvm", "both"), default="both")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        results = soak(
            Path(folder),
            asked.messages,
            asked.kills,
            file_size=asked.file_size,
            bytes_per_trigger=asked.bytes_per_trigger,
            per_second=asked.per_second,
            readers=("python", "jvm") if asked.reader == "both" else (asked.reader,),
        )
    expected = (asked.messages, asked.messages, asked.messages, 0)
    for reader, result in results.items():
        print(reader, result)
    passed = [(one.rows, one.distinct, one.records, one.missing) == expected for one in results.values()]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
