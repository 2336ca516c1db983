"""RouteBarrier: delays answers about a changed topic until the topic is on disk and registered with the name servers.

A client whose message was accepted for a new topic looks up its route next, and must find it after a crash, too. Therefore
answers to requests that create or use a changed topic wait until topics.json is written and every reachable name server has
the topic. If the file cannot be written, they become refusals (`broker.put.answer_gate`).
"""

import asyncio
from collections.abc import Callable, Iterable

from pocketmq.broker.registration.registration import Registration
from pocketmq.remoting.after_write import not_written
from pocketmq.runtime.event import Event
from pocketmq.runtime.table_writer import Written
from pocketmq.runtime.timers import Timers


class RouteBarrier:
    """The changed topics that may not be on disk or registered yet."""

    def __init__(
        self, registration: Registration, timers: Timers, timeout_s: float, unwritten: Callable[[str], Written | None]
    ) -> None:
        """`timeout_s` bounds the wait. `unwritten` returns the pending write of a topic, or None when it is on disk."""
        self._registration = registration
        self._timers = timers
        self._timeout_s = timeout_s
        self._unwritten = unwritten
        # Topic -> future of its registration, with the reason of a failure as its result, else None. Topics changed in one
        # turn share a future.
        self._rounds: dict[str, asyncio.Future[str | None]] = {}
        self._topics: dict[asyncio.Future[str | None], list[str]] = {}
        self._newest: tuple[Written, asyncio.Future[str | None]] | None = None
        self.changed: Event[[]] = Event()
        """Called when `is_waiting` may have changed."""

    @property
    def is_waiting(self) -> bool:
        """True if some topic may not be on disk or registered yet."""
        return bool(self._rounds)

    def topic_changed(self, topic: str) -> None:
        """Register a changed topic once it is on disk; until then answers about it wait."""
        known = self._known(topic)
        if known.done():
            return
        self._rounds[topic] = known
        self.changed()
        if known not in self._topics:
            self._topics[known] = []
            known.add_done_callback(self._forget)
        self._topics[known].append(topic)

    def _forget(self, known: "asyncio.Future[str | None]") -> None:
        for topic in self._topics.pop(known):
            if self._rounds.get(topic) is known:
                del self._rounds[topic]
        self.changed()

    def _known(self, topic: str) -> "asyncio.Future[str | None]":
        unwritten = self._unwritten(topic)
        if unwritten is not None and self._newest is not None and self._newest[0] is unwritten:
            return self._newest[1]
        known: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        if unwritten is None:
            self._register(known)
        else:
            self._newest = unwritten, known
            unwritten.add_done_callback(lambda written: self._written(written, known))
        return known

    def _written(self, written: Written, known: "asyncio.Future[str | None]") -> None:
        self._newest = None
        error = written.result()
        if error is None:
            self._register(known)
        else:
            known.set_result(not_written(error))

    def _register(self, known: "asyncio.Future[str | None]") -> None:
        """Complete `known` when the topic is registered, or after the timeout."""
        registered = self._registration.register()

        def end() -> None:
            if not known.done():
                known.set_result(None)

        if registered.done():
            end()
            return
        timer = self._timers.after(self._timeout_s, end)
        known.add_done_callback(lambda _: timer.cancel())
        registered.add_done_callback(lambda _: end())

    def rounds(self, topics: Iterable[str]) -> "set[asyncio.Future[str | None]]":
        """Return the futures of the registrations that answers about `topics` wait for."""
        return {self._rounds[topic] for topic in topics if topic in self._rounds}
