"""Answers that wait until a topic is on the disk and the name servers know it.

Whoever is told that a new topic took a message looks for its route next, and must find it after a crash, too. So a topic
that just changed is remembered here until topics.json is written and a round of registration told every reachable name
server, and the answers of requests that made or used the topic meanwhile are held back as long. When the file cannot be
written, they are refusals. An ordinary send looks at one flag, `is_immediate`, for this wait and for that of the log.
"""

import asyncio
from collections.abc import Callable

from pocketmq.broker.registration.registration import Registration
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.remoting.durable import not_written, when_done
from pocketmq.runtime.table_writer import Written
from pocketmq.runtime.timers import Timers


class RouteBarrier:
    """The topics that name servers may not know yet."""

    def __init__(self, registration: Registration, timers: Timers, timeout_s: float, is_safe_at_once: bool) -> None:
        """`timeout_s`: no answer waits longer. `is_safe_at_once`: a stored message need not wait for disk or slave."""
        self._registration = registration
        self._timers = timers
        self._timeout_s = timeout_s
        self._is_safe_at_once = is_safe_at_once
        # Topic -> done when it is known: None, or why it never will be. Topics that change in one turn share theirs.
        self._rounds: dict[str, asyncio.Future[str | None]] = {}
        self._newest: tuple[Written, asyncio.Future[str | None]] | None = None
        self.unwritten: Callable[[str], Written | None] = lambda topic: None
        """Tells when a topic is on the disk; None when it is."""
        self.is_immediate = is_safe_at_once
        """Whether a stored message, whatever its topic, can be answered at once."""

    def topic_changed(self, topic: str) -> None:
        """Register again, once the topic is on the disk; answers about `topic` wait for it."""
        known = self._known(topic)
        if known.done():
            return
        self._rounds[topic] = known
        self.is_immediate = False

        def forget(known: "asyncio.Future[str | None]") -> None:
            if self._rounds.get(topic) is known:
                del self._rounds[topic]
                self.is_immediate = self._is_safe_at_once and not self._rounds

        known.add_done_callback(forget)

    def _known(self, topic: str) -> "asyncio.Future[str | None]":
        unwritten = self.unwritten(topic)
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
        """Have `known` done when the name servers are told, or after the time that nothing waits longer than."""
        told = self._registration.register()

        def end() -> None:
            if not known.done():
                known.set_result(None)

        if told.done():
            end()
            return
        timer = self._timers.after(self._timeout_s, end)
        known.add_done_callback(lambda _: timer.cancel())
        told.add_done_callback(lambda _: end())

    def when_routed(self, answer: Response | Deferred, *topics: str) -> Response | Deferred:
        """The answer to a request that made or used `topics`, once they are kept and can be found. A Deferred must not be
        bound yet."""
        return when_done(answer, {self._rounds[topic] for topic in topics if topic in self._rounds})
