"""Corpus in the repository: one compressed file per target, in which each input covers code that the others do not."""

import gzip
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tests.fuzz.fuzz_oracle import PACKAGES, ROOT

FOLDER = Path(__file__).parent / "corpus"
INPUTS_MAX = 400
SIZE_MAX = 40_000
"""Maximum size of a target's inputs before compression."""

_OURS = tuple(f"{ROOT}/{name}/" for name in PACKAGES)


def read_corpus(name: str) -> list[bytes]:
    path = FOLDER / f"{name}.gz"
    return msgspec.msgpack.decode(gzip.decompress(path.read_bytes()), type=list[bytes]) if path.exists() else []


def write_corpus(name: str, inputs: Iterable[bytes]) -> None:
    FOLDER.mkdir(exist_ok=True)
    data = msgspec.msgpack.encode(sorted(inputs, key=lambda one: (len(one), one)))
    (FOLDER / f"{name}.gz").write_bytes(gzip.compress(data, 9, mtime=0))


def reduced(one: Callable[[bytes], Any], inputs: Iterable[bytes]) -> list[bytes]:
    """Return the inputs, shortest first, that each add an edge, up to the limits of the corpus."""
    seen: set[Any] = set()
    kept: list[bytes] = []
    size = 0
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        if size + len(data) > SIZE_MAX:
            continue
        edges = edges_of(one, data)
        if not edges <= seen:
            seen |= edges
            kept.append(data)
            size += len(data)
            if len(kept) == INPUTS_MAX:
                break
    return kept


def edges_of(one: Callable[[bytes], Any], data: bytes) -> set[Any]:
    """Return (code, previous line, line) of all steps through PocketMQ's code."""
    edges: set[Any] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            return None
        before = 0

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            if event == "line":
                edges.add((code, before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        one(data)
    except Exception:
        pass  # exceptions are judged by the fuzzer; here only the executed lines count
    finally:
        sys.settrace(None)
    return edges
