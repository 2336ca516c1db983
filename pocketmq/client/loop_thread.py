"""LoopThread: an event loop in a thread of its own, in which a synchronous facade runs an asyncio client."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A running loop. `call` may be used by any thread but the loop's own; `close` ends both."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result. An interrupted caller (Ctrl-C) cancels it.

        Raises RuntimeError after `close`, or in the loop's own thread, which would wait for itself.
        """
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            coroutine.close()
            why = "is closed" if self._loop.is_closed() else "cannot be used by its own callbacks"
            raise RuntimeError(f"the {self._thread.name} {why}")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(f"the {self._thread.name} was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    @property
    def is_open(self) -> bool:
        """Whether `close` was not called yet."""
        return not self._loop.is_closed()

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
