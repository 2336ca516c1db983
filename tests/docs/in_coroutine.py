"""A program that runs blocks of Python which await, one after another, with names in common.

Standard input is a JSON list of `[place, source, seconds]`; a block with seconds is endless and is cancelled after them.
"""

import ast
import asyncio
import contextlib
import inspect
import json
import sys
from typing import Any

FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


async def run(blocks: list[tuple[str, str, float | None]]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for place, source, seconds in blocks:
        print(f"<<<{place}>>>", flush=True)
        with contextlib.suppress(TimeoutError) if seconds else contextlib.nullcontext():
            async with asyncio.timeout(seconds or 150):
                done = eval(compile(source, place, "exec", FLAGS), names)
                if inspect.isawaitable(done):
                    await done
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run(json.load(sys.stdin)))
