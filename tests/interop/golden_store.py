"""The stores in `tests/golden` written by Apache's brokers, unpacked for brokers to run on."""

import gzip
import json
from pathlib import Path
from typing import Any

from tests.golden.golden_files import GOLDEN, unpack_golden
from tests.interop.served import Records, document
from tests.interop.wire import record

_OF_THE_MACHINE = {"listenPort", "namesrvAddr", "storePathRootDir", "storePathCommitLog", "enablePropertyFilter"}


def unpack(name: str, folder: Path) -> dict[str, object]:
    """Unpacks a store into `folder`/store; returns the settings of its broker. Retention spares its old files."""
    unpack_golden(name, folder)
    lines = (folder / "broker.conf").read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if "=" in line]
    return {key: value for key, value in pairs if key not in _OF_THE_MACHINE} | {"fileReservedTime": 720_000}


def expected_records(name: str, store: Path) -> Records:
    """Returns the records that Apache's own classes find in the queues; must run before a broker runs on the store."""
    log = {int(path.name): path.read_bytes() for path in (store / "commitlog").iterdir()}
    file_size = len(log[0])
    topics = document((store / "config" / "topics.json").read_bytes())["topicConfigTable"]
    found: Records = {}
    for row in _rows(name, "expected_cq"):
        if row["topic"] not in topics:  # cannot be pulled
            continue
        found[row["topic"], row["queueId"]] = [
            record(log[offset // file_size * file_size], offset % file_size) for offset, _, _ in row["units"]
        ]
    return found


def expected_by_key(name: str) -> list[tuple[str, str, set[int]]]:
    """Returns (topic, key, physical offsets of the records with that key), by Apache's own index."""
    return [
        (row["topic"], row["key"], {int(msg_id[-16:], 16) for msg_id in row["keyReallyMatches"]})
        for row in _rows(name, "expected_index")
    ]


def _rows(name: str, file: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / name / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
