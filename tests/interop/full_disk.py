"""A broker on a small file system that really fills up; needs root, to mount it.

    python -m tests.interop.full_disk ext4|xfs|tmpfs [--size-mb 160] [--flush SYNC_FLUSH]

The broker must refuse messages with the reason, the path and the used share, must not crash (SIGBUS), must still serve
pulls, and must accept messages again once there is space. After a kill it must start without any free space, or say what
needs space; and it must have all acknowledged messages, including timer messages.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.interop.servers import Cluster, Pocketmq
from tests.interop.wire import SEND_MESSAGE_V2, SUCCESS, Connection, send_fields
from tests.patience import PATIENCE_S

TOPIC, QUEUES = "Full-topic", 8
# One message in TIMED_EACH is delayed and passes through the timers' files.
TIMED_TOPIC, TIMED_EACH, DELAY_MAX_S = "Full-timed", 20, 30
REFUSED_IN_A_ROW = 300


@contextmanager
def mounted(kind: str, size_mb: int, folder: Path) -> Iterator[Path]:
    """Mount a file system of `size_mb` under `folder`."""
    target, image = folder / "disk", folder / "image"
    target.mkdir()
    if kind == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "pocketmq-full", target], check=True)
    else:
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        quiet = ["-q", "-F"] if kind == "ext4" else ["-q"]
        subprocess.run([f"mkfs.{kind}", *quiet, image], check=True)
        subprocess.run(["mount", "-o", "loop", image, target], check=True)
    try:
        yield target
    finally:
        subprocess.run(["umount", target], check=True)


class Sender:
    """Sends messages and records the acknowledged ones: (queue, queue offset) -> body CRC; of timer messages the CRC."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.timed: set[int] = set()
        self.refusal = ""
        self._random = random.Random(3)
        self._number = 0

    def send(self, connection: Connection) -> bool:
        self._number += 1
        queue_id = self._number % QUEUES
        body = b"%d:" % self._number + self._random.randbytes(self._random.randrange(3000))
        properties, topic = {"KEYS": f"k{self._number}"}, TOPIC
        if is_timed := self._number % TIMED_EACH == 0:
            properties["TIMER_DELAY_SEC"] = str(self._random.randrange(1, DELAY_MAX_S))
            topic, queue_id = TIMED_TOPIC, 0
        answer = connection.call(SEND_MESSAGE_V2, send_fields(topic, queue_id, properties), body)
        if answer.code == SUCCESS and is_timed:
            self.timed.add(zlib.crc32(body))
        elif answer.code == SUCCESS:
            self.acknowledged[queue_id, int(answer.ext["queueOffset"])] = zlib.crc32(body)
        else:
            self.refusal = f"code {answer.code}: {answer.remark}"
        return answer.code == SUCCESS

    def audit(self, connection: Connection) -> None:
        for queue_id in range(QUEUES):
            found = {record.queue_offset: zlib.crc32(record.body) for record in connection.read_queue(TOPIC, queue_id)}
            lost = [at for (queue, at), crc in self.acknowledged.items() if queue == queue_id and found.get(at) != crc]
            assert not lost, f"queue {queue_id}: acknowledged but missing: {lost[:20]}"

    def await_timed(self, connection: Connection) -> None:
        deadline = time.monotonic() + DELAY_MAX_S + PATIENCE_S
        while missing := self.timed - {zlib.crc32(record.body) for record in connection.read_queue(TIMED_TOPIC, 0)}:
            assert time.monotonic() < deadline, f"{len(missing)} of {len(self.timed)} timed messages were not delivered"
            time.sleep(1)


def ballast(disk: Path, leave_mb: int) -> Path:
    """Create a file that uses all space but the given amount."""
    path, stat = disk / "ballast", os.statvfs(disk)
    room = stat.f_bavail * stat.f_frsize - (leave_mb << 20)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(room, 1))
    return path


def take_the_rest(disk: Path) -> Path:
    """Create a file that uses the remaining space, to the last page."""
    path = disk / "rest"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


def until_accepted(sender: Sender, connection: Connection) -> float:
    began = time.monotonic()
    while not sender.send(connection):
        assert time.monotonic() - began < PATIENCE_S, f"refused although there is space: {sender.refusal}"
        time.sleep(0.1)
    return time.monotonic() - began


def fill(sender: Sender, connection: Connection) -> None:
    count = refused = 0
    while refused < REFUSED_IN_A_ROW:  # a smaller message may still fit
        if sender.send(connection):
            count, refused = count + 1, 0
        else:
            refused += 1
    print(f"  {count} accepted, then {sender.refusal}")
    assert "/disk/" in sender.refusal and "% full" in sender.refusal, "the refusal lacks the path or the used share"


def restart_on_full(cluster: Cluster, sender: Sender, disk: Path, path: Path) -> None:
    """Start the killed broker without any free space, then free some, also by deleting `path`."""
    rest = take_the_rest(disk)
    try:
        cluster.start_broker()
    except RuntimeError as error:
        first, *_, last = str(error).strip().splitlines()
        assert "ended with 1 " in first and "/disk/" in last and "% full" in last, error
        print(f"  does not open without free space: {last}")
        rest.unlink()
        path.unlink()
        cluster.start_broker()
        return
    with Connection(cluster.broker_address) as connection:
        sender.audit(connection)
        print("  opens without free space, and has all messages")
        fill(sender, connection)  # space that the log has reserved may be left
    rest.unlink()
    path.unlink()


def run(kind: str, size_mb: int, flush: str, warning_level: int, folder: Path) -> None:
    with mounted(kind, size_mb, folder) as disk:
        config = {"flushDiskType": flush, "mappedFileSizeCommitLog": 8 << 20, "maxMessageSize": 1 << 16,
                  "maxHashSlotNum": 5000, "maxIndexNum": 20_000, "cleanFileForciblyEnable": "false",
                  "diskSpaceWarningLevelRatio": warning_level}  # fmt: skip
        # `folder` is on another file system, so that the broker's output can be written.
        cluster, sender = Cluster(folder / "servers", Pocketmq(), **config), Sender()
        cluster.store = disk / "store"
        try:
            for leave_mb in (24, 9, 3):
                cluster.start_broker()
                with Connection(cluster.broker_address) as connection:
                    if leave_mb == 24:
                        connection.create_topic(TOPIC, QUEUES)
                        connection.create_topic(TIMED_TOPIC, 1)
                    until_accepted(sender, connection)
                    path = ballast(disk, leave_mb)
                    fill(sender, connection)
                    sender.audit(connection)
                    path.unlink()
                    print(f"  room again: taken after {until_accepted(sender, connection):.1f} s")
                    path = ballast(disk, 1)
                    fill(sender, connection)
                cluster.kill_broker()
                restart_on_full(cluster, sender, disk, path)
                with Connection(cluster.broker_address) as connection:
                    print(f"  room again: taken after {until_accepted(sender, connection):.1f} s")
                    sender.audit(connection)
                    sender.await_timed(connection)
                assert cluster.broker is not None
                cluster.broker.stop()
            print(f"  {len(sender.acknowledged)} and {len(sender.timed)} timed ones acknowledged, none missing")
        finally:
            cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="a broker on a file system that fills up")
    parser.add_argument("kind", choices=("ext4", "xfs", "tmpfs"))
    parser.add_argument("--size-mb", type=int, default=160)
    parser.add_argument("--flush", choices=("SYNC_FLUSH", "ASYNC_FLUSH"))
    parser.add_argument(
        "--warning-level", type=int, default=90, help="diskSpaceWarningLevelRatio; with 100 only the device itself refuses"
    )
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: it mounts a file system", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the file system is unmounted
    for flush in [arguments.flush] if arguments.flush else ["SYNC_FLUSH", "ASYNC_FLUSH"]:
        print(f"{arguments.kind}, {arguments.size_mb} MB, {flush}")
        with tempfile.TemporaryDirectory(prefix="full-disk-") as folder:
            run(arguments.kind, arguments.size_mb, flush, arguments.warning_level, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
