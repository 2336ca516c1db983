"""Answers that wait until the name servers know a topic.

Whoever is told that a new topic took a message looks for its route next. So a topic that just changed is remembered here
until a round of registration told every reachable name server, and the answers of requests that made or used the topic
meanwhile are held back as long. An ordinary send looks at one flag, `is_immediate`, for this wait and for that of the disk.
"""

import asyncio

from broker.registration import Registration
from remoting.command import Response
from remoting.dispatch import Deferred
from runtime.timers import Timers


class RouteWait:
    """The topics that name servers may not know yet."""

    def __init__(self, registration: Registration, timers: Timers, timeout_s: float, is_safe_at_once: bool) -> None:
        """`timeout_s`: no answer waits longer. `is_safe_at_once`: a stored message need not wait for disk or slave."""
        self._registration = registration
        self._timers = timers
        self._timeout_s = timeout_s
        self._is_safe_at_once = is_safe_at_once
        # Topic -> done when it is known. In order of change, and a later round ends later.
        self._rounds: dict[str, asyncio.Future[None]] = {}
        self.is_immediate = is_safe_at_once
        """Whether a stored message, whatever its topic, can be answered at once."""

    def topic_changed(self, topic: str) -> None:
        """Register again; answers about `topic` wait for it."""
        known = self._registration.register()
        if known.done():
            return
        self._rounds.pop(topic, None)
        self._rounds[topic] = known
        self.is_immediate = False

        def give_up() -> None:
            if not known.done():
                known.set_result(None)

        timer = self._timers.after(self._timeout_s, give_up)

        def forget(known: "asyncio.Future[None]") -> None:
            timer.cancel()
            if self._rounds.get(topic) is known:
                del self._rounds[topic]
                self.is_immediate = self._is_safe_at_once and not self._rounds

        known.add_done_callback(forget)

    def when_routed(self, answer: Response | Deferred, *topics: str) -> Response | Deferred:
        """The answer to a request that made or used `topics`, once they can be found. A Deferred must not be bound yet."""
        waited = [known for topic, known in self._rounds.items() if topic in topics]
        if not waited:
            return answer
        known, outer = waited[-1], Deferred()
        if isinstance(answer, Response):
            known.add_done_callback(lambda _: outer.complete(answer))
        else:
            answer.hand_to(lambda response: known.add_done_callback(lambda _: outer.complete(response)))
        return outer
