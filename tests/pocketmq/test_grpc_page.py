"""docs/grpc.md lists the calls of gRPC clients, and every key with its default and limits."""

import re
from dataclasses import Field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from pocketmq.proxy.config import GrpcConfig, ProxyConfig
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.runtime.config import camel

PAGE = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()


def _row(field: Field[Any]) -> list[str]:
    default, limits = field.default, (field.metadata.get("low"), field.metadata.get("high"))
    shown = "" if default is None else str(default.value if isinstance(default, Enum) else default)
    return [
        f"`{field.metadata.get('key') or camel(field.name)}`",
        shown.lower() if isinstance(default, bool) else shown,
        "" if limits[0] is None else "{} to {}".format(*limits),
    ]


def _table(begin: str) -> list[list[str]]:
    """Return the first three cells of each row of a marked table."""
    text = PAGE.partition(begin)[2].partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()]
    return [row[:3] for row in rows[2:]]


def test_every_key_is_listed_with_its_default_and_limits() -> None:
    assert _table("<!-- keys -->\n") == [_row(field) for field in fields(GrpcConfig)]
    own = fields(ProxyConfig)[len(fields(GrpcConfig)) :]
    assert _table("<!-- mqproxy -->\n") == [_row(field) for field in own]


def test_every_call_is_listed() -> None:
    table = PAGE.partition("\n## Calls\n")[2].partition("\n\nA failed call")[0]
    listed = {name for line in table.splitlines()[2:] for name in re.findall(r"\w+", line.split("|")[1])}
    methods = {name.removesuffix("Request") for name in vars(pb) if name.endswith("Request")} | {"Telemetry"}
    assert listed == methods
