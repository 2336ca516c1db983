"""Many requests for one part of a page, within the time that one server may take."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pocketmq.admin.api.client import AdminError
from pocketmq.console.view import CONCURRENT_MAX, View
from pocketmq.remoting.dispatch import RemotingError

T = TypeVar("T")


async def gathered(view: View, part: str, works: Sequence[Callable[[], Awaitable[T]]]) -> list[T | None]:
    """Do some work, and return the results; None where it failed or was not done in time, which the page says of `part`."""
    results: list[T | None] = [None] * len(works)
    failures: list[AdminError | RemotingError] = []
    turns = asyncio.Semaphore(CONCURRENT_MAX)

    async def do(number: int) -> None:
        async with turns:
            try:
                results[number] = await works[number]()
            except (AdminError, RemotingError) as failure:
                failures.append(failure)

    async def do_all() -> None:
        await asyncio.gather(*map(do, range(len(works))))
        if failures:
            raise failures[0]

    await view.ask(part, do_all())
    return results
