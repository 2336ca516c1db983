"""Recorded frames of real clients, brokers and tools (tests/golden/wire)."""

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "golden" / "wire"
CLIENTS = ("java494_json", "java494_rocketmq", "go_v2", "java550_json", "mqadmin494", "broker_rocketmq")


class Recorded(NamedTuple):
    """Frame with its length field, and its fields as read by an independent decoder."""

    data: bytes
    read: dict[str, Any]


@cache
def recorded(client: str) -> tuple[Recorded, ...]:
    with gzip.open(FOLDER / f"{client}.jsonl.gz", "rt") as file:
        return tuple(Recorded(base64.b64decode(row["frame"]), row) for row in map(json.loads, file))


def all_recorded() -> Iterator[Recorded]:
    for client in CLIENTS:
        yield from recorded(client)
