"""Time of each page of the console, and what it costs the broker: `python -m bench.console [--messages 1000000]`.

One broker of ours has 10,000 topics, 1,000 consumer groups with progress, and a topic with a million messages, of which some
are dead letters and some are delayed. The console runs in this process; a page is fetched a few times by HTTP, and the
medians are shown. The CPU is that of the broker's process.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx
from rich.table import Table

from bench import wire
from bench.run import console as out
from bench.servers import Running
from pocketmq.cli import processes
from pocketmq.client.access import PLAIN
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer, ConsoleThread
from tests.interop.wire import SEND_BATCH_MESSAGE, UPDATE_CONSUMER_OFFSET, Connection, batch_body, records, send_fields

TOPICS: Final = 10_000
GROUPS: Final = 1_000
BIG: Final = "Big"
QUEUES: Final = 8
BATCH: Final = 500
DELAYED: Final = 20_000
CREATE_GROUP: Final = 200
ROUNDS: Final = 5
PAGES: Final = {
    "cluster": "/",
    "topics": "/topics",
    "topics, filtered and sorted": "/topics?q=topic-77&sort=-messages",
    "one topic": f"/topic?name={BIG}",
    "groups": "/groups",
    "one group": "/group?name=group-7",
    "producers": "/producers",
    "configuration": "/configuration",
    "charts": "/charts",
    "messages, newest": f"/messages?topic={BIG}",
    "messages, 100 rows": f"/messages?topic={BIG}&size=100",
    "messages, oldest of a time": f"/messages?topic={BIG}&order=oldest&from=2020-01-01T00:00",
    "messages, by tag": f"/messages?topic={BIG}&tags=rare",
    "messages, by key": f"/messages?topic={BIG}&key=key-500000",
    "one message": f"/message?topic={BIG}&broker=broker-a&queue=3&offset=50000",
    "dead letters": "/dead-letters",
    "dead letters of a group": "/dead-letters/group?group=group-7",
    "delayed messages": "/delayed",
}


def fill(address: str, messages: int) -> None:
    """Create topics, groups and messages."""
    wire.create_topics(address, [f"topic-{number}" for number in range(TOPICS - 1)], 1)
    wire.create_topics(address, [BIG], QUEUES)
    with Connection(address, timeout_s=60) as connection:
        groups = [json.dumps({"groupName": f"group-{number}"}).encode() for number in range(GROUPS)]
        connection.ask_many([(CREATE_GROUP, {}, body) for body in groups])
        for begin in range(0, messages, BATCH * QUEUES):
            connection.ask_many([_batch(begin + BATCH * queue, queue) for queue in range(QUEUES)])
        commits = [
            {"consumerGroup": f"group-{number}", "topic": BIG, "queueId": queue, "commitOffset": number}
            for number in range(GROUPS)
            for queue in range(QUEUES)
        ]
        connection.ask_many([(UPDATE_CONSUMER_OFFSET, fields, b"") for fields in commits])
        for number in range(DELAYED):
            connection.send(BIG, 0, b"later", {"UNIQ_KEY": f"L{number}", "TIMER_DELAY_SEC": str(60 * (number + 1))})
        connection.subscribe("group-7", BIG)
        for queue in range(QUEUES):
            for sent in records(connection.pull("group-7", BIG, queue, 0).body):
                connection.send_back("group-7", sent, -1)


def _batch(first: int, queue: int) -> tuple[int, dict[str, object], bytes]:
    rows = [
        (
            b'{"number": %d, "text": "%s"}' % (number, b"x" * 100),
            {"UNIQ_KEY": f"M{number:09d}", "KEYS": f"key-{number}", "TAGS": "rare" if number % 50_000 == 7 else "often"},
        )
        for number in range(first, first + BATCH)
    ]
    return SEND_BATCH_MESSAGE, {**send_fields(BIG, queue), "m": "true"}, batch_body(rows)


def start(folder: Path) -> tuple[str, Running]:
    """Start a name server and a broker; return the former's address."""
    namesrv = processes.start_namesrv(folder)
    settings = {"brokerName": "broker-a", "maxTopicCreationsPerSecond": "0", "maxGroupCreationsPerSecond": "0"}
    broker = processes.start_broker(folder, namesrv.address, settings)
    stop = lambda: (broker.stop(), namesrv.stop())  # noqa: E731
    return namesrv.address, Running("PocketMQ", broker.address, broker.process.pid, broker.boot_seconds, stop)


def measured(browser: httpx.Client, pid: int, path: str) -> tuple[float, float, float, int]:
    """Return the median and the longest time of a page in ms, the broker's CPU for it in ms, and its bytes."""
    times, size = [], 0
    browser.get(path)
    before = processes.cpu_seconds(pid)
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        answer = browser.get(path)
        times.append((time.perf_counter() - begin) * 1000)
        size = len(answer.content)
        if answer.status_code != 200:
            return float("nan"), float("nan"), float("nan"), answer.status_code
    return statistics.median(times), max(times), (processes.cpu_seconds(pid) - before) / ROUNDS * 1000, size


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__.split("\n\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--scratch", type=Path, help="folder of the store")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.scratch))
    namesrv, broker = start(folder)
    thread = None
    try:
        begin = time.perf_counter()
        fill(broker.address, options.messages)
        out.print(f"[dim]filled in {time.perf_counter() - begin:.0f} s[/]")
        config = ConsoleConfig(namesrv_addr=namesrv, console_port=0)
        thread = ConsoleThread(ConsoleServer(config, PLAIN))
        thread.start()
        title = f"{TOPICS:,} topics, {GROUPS:,} groups, {options.messages:,} messages, {os.cpu_count()} cores"
        table = Table("page", "median ms", "longest ms", "broker's CPU ms", "KB", title=title)
        with httpx.Client(base_url=thread.server.url, timeout=60, follow_redirects=True) as browser:
            for name, path in PAGES.items():
                median, longest, cpu, size = measured(browser, broker.pid, path)
                row = f"HTTP {size}" if median != median else f"{size / 1000:,.0f}"
                table.add_row(name, f"{median:,.0f}", f"{longest:,.0f}", f"{cpu:,.1f}", row)
        out.print(table)
    finally:
        if thread is not None:
            thread.stop()
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
