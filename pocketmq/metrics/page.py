"""Page: the text of `/metrics`, collected from all servers of the process.

Requests are answered with the last figures for as long as collecting new ones would take more than LOOP_SHARE of the time.
So frequent requests, or large tables, cannot slow down the servers.
"""

import asyncio
import time
from collections.abc import Generator, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pocketmq.metrics.family import Family, Row, Source, plain
from pocketmq.metrics.loop_monitor import LoopMonitor, LoopStuck, on_loop

if TYPE_CHECKING:
    from pocketmq.metrics.exposition import Exposition

LOOP_SHARE: Final = 0.01
"""Share of the time that may be spent on collecting and writing figures."""
COLLECT_MAX_S: Final = 5.0
"""Maximum time for the event loop to return its figures."""
SLICE_S: Final = 0.001
"""Time spent on writing before a pause."""
PAUSE_S: Final = 0.0005
"""Pause in which the event loop runs."""


class Page:
    """Used by the thread of the HTTP server only, except for `sources`, which is set once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monitor: LoopMonitor) -> None:
        self.sources: Sequence[Source] = ()
        self._loop = loop
        self._monitor = monitor
        self._lock = asyncio.Lock()
        self._families: list[Family] = []
        self._collected_s = self._next_s = float("-inf")
        self._loop_s = 0.0
        self._texts: dict[str, bytes] = {}
        self._expositions: dict[str, Exposition] = {}

    async def text(self, accept: str) -> tuple[str, bytes]:
        """Return content type and body."""
        # Loaded at the first scrape: it takes longer than the start of a server.
        from pocketmq.metrics.exposition import Exposition, process_registry

        exposition = Exposition(accept)
        exposition = self._expositions.setdefault(exposition.content_type, exposition)
        async with self._lock:
            is_current = await self._collect()
            text = await self._tables(exposition) if is_current else b""
        own = b"".join(chunk for family in self._own(is_current) for chunk in exposition.chunks(family))
        return exposition.content_type, text + own + exposition.encoded(process_registry()) + exposition.end

    async def _collect(self) -> bool:
        """Collect figures unless those at hand are new enough; return whether there are current ones."""
        if not self.sources:
            return False  # still starting
        if time.monotonic() < self._next_s:
            return True
        try:
            collected, self._loop_s = await on_loop(self._loop, self._collecting(), COLLECT_MAX_S)
        except LoopStuck:
            return False
        began_s = time.thread_time()
        self._families = _merged(
            family for source, figures in zip(self.sources, collected, strict=True) for family in source.families(figures)
        )
        self._collected_s = time.monotonic()
        self._texts.clear()
        self._spend(self._loop_s + time.thread_time() - began_s)
        return True

    def _spend(self, seconds: float) -> None:
        """Put off the next collection in proportion to the time spent."""
        self._next_s = max(self._next_s, self._collected_s) + seconds / LOOP_SHARE

    def _collecting(self) -> Generator[None, None, list[Any]]:
        figures = []
        for source in self.sources:
            figures.append((yield from source.collecting()))
        return figures

    async def _tables(self, exposition: "Exposition") -> bytes:
        """Return the text of the figures at hand, written once for each format."""
        text = self._texts.get(exposition.content_type)
        if text is not None:
            return text
        parts: list[bytes] = []
        began_s = paused_s = time.thread_time()
        for chunk in chain.from_iterable(map(exposition.chunks, self._families)):
            parts.append(chunk)
            if time.thread_time() - paused_s >= SLICE_S:
                await asyncio.sleep(PAUSE_S)
                paused_s = time.thread_time()
        text = self._texts[exposition.content_type] = b"".join(parts)
        self._spend(time.thread_time() - began_s)
        return text

    def _own(self, is_current: bool) -> Iterable[Family]:
        lags, silence_s, age_s = self._monitor.lags.buckets, self._monitor.silence_s, time.monotonic() - self._collected_s
        late, cost = "How late the event loop", "Time that the event loop spent on collecting the figures of this page."
        yield plain("pocketmq_event_loop_lag_seconds", "histogram", f"{late} runs, measured four times a second.", lags)
        yield plain("pocketmq_event_loop_silence_seconds", "gauge", f"{late} is now.", silence_s)
        if is_current:
            yield plain("pocketmq_metrics_age_seconds", "gauge", "Age of the figures of the servers on this page.", age_s)
            yield plain("pocketmq_metrics_collect_seconds", "gauge", cost, self._loop_s)


def _merged(families: Iterable[Family]) -> list[Family]:
    """Return the families, with the rows of families of the same name joined."""
    by_name: dict[str, Family] = {}
    for family in families:
        rows: list[Row] = list(family.rows)
        known = by_name.get(family.name)
        by_name[family.name] = family._replace(rows=rows if known is None else [*known.rows, *rows])
    return list(by_name.values())
