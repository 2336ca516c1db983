"""NOTIFY_CONSUMER_IDS_CHANGED: tells the consumers of a group that it changed.

A group that changes several times in a turn is told once. Of a large group each change costs a message to every member, so
it is told the less often the larger it is; clients look for themselves each 20 s.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Phase, Turn
from pocketmq.runtime.work_slices import WorkSlices

if TYPE_CHECKING:
    from pocketmq.broker.clients.client_registry import ConsumerGroupInfo

SMALL_GROUP: Final = 16
"""Groups up to this size are told with each turn."""
PER_MEMBER_S: Final = 0.0005
INTERVAL_MAX_S: Final = 1.0
LATER_S: Final = 0.1


class GroupNotifier:
    """The groups that changed and were not told yet."""

    def __init__(self, timers: Timers, turn: Turn) -> None:
        self._timers = timers
        self._turn = turn
        self._slices = WorkSlices(timers)
        self._changed: dict[str, ConsumerGroupInfo] = {}
        self._later: dict[str, ConsumerGroupInfo] = {}
        turn.add(Phase.WAKE, self._end_turn)

    def changed(self, group: "ConsumerGroupInfo") -> None:
        """A group changed; it is told at the end of the turn."""
        self._changed[group.group] = group
        self._turn.arm()

    def _end_turn(self) -> None:
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        now = self._timers.clock.monotonic()
        for name, group in changed.items():
            if now >= group.next_told_s:
                count = len(group.clients)
                group.next_told_s = now + (min(count * PER_MEMBER_S, INTERVAL_MAX_S) if count > SMALL_GROUP else 0.0)
                self._slices.start(self._tell(group))
            else:
                if not self._later:
                    self._timers.after(LATER_S, self._look_again)
                self._later[name] = group

    def _look_again(self) -> None:
        self._changed, self._later = self._later | self._changed, {}
        self._turn.arm()

    def _tell(self, group: "ConsumerGroupInfo") -> Iterator[None]:
        header = ConsumerGroupRequestHeader(group.group)
        for channel in tuple(group.clients):
            channel.invoke_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
            yield
