"""GroupNotifier: sends NOTIFY_CONSUMER_IDS_CHANGED to the consumers of a group that changed.

Several changes in one loop turn cause one notification. A notification costs one message per member, therefore large groups
are notified less often, in proportion to their size; clients also rebalance by themselves every 20 s.
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
"""Groups up to this size are notified in every turn in which they change."""
PER_MEMBER_S: Final = 0.0005
"""Minimum interval between notifications of a larger group, per member."""
INTERVAL_MAX_S: Final = 1.0
"""Upper bound of that interval."""
LATER_S: Final = 0.1
"""Time after which postponed notifications are tried again."""


class GroupNotifier:
    """The groups that changed and are not notified yet."""

    def __init__(self, timers: Timers, slices: WorkSlices, turn: Turn) -> None:
        self._timers = timers
        self._turn = turn
        self._slices = slices
        self._changed: dict[str, ConsumerGroupInfo] = {}
        self._later: dict[str, ConsumerGroupInfo] = {}
        self._notifying = turn.add(Phase.WAKE, self._end_turn, is_always_due=False)

    def changed(self, group: "ConsumerGroupInfo") -> None:
        """Notify a changed group at the end of the turn, or later if it was notified recently."""
        self._changed[group.group] = group
        self._notifying.is_due = True
        self._turn.arm()

    def _end_turn(self) -> None:
        changed, self._changed = self._changed, {}
        now = self._timers.clock.monotonic()
        notified = []
        for name, group in changed.items():
            if now >= group.next_notify_s:
                count = len(group.clients)
                group.next_notify_s = now + (min(count * PER_MEMBER_S, INTERVAL_MAX_S) if count > SMALL_GROUP else 0.0)
                notified.append(group)
            else:
                if not self._later:
                    self._timers.after(LATER_S, self._retry_postponed)
                self._later[name] = group
        if notified:
            self._slices.start(self._notify(notified))

    def _retry_postponed(self) -> None:
        self._changed, self._later = self._later | self._changed, {}
        self._notifying.is_due = True
        self._turn.arm()

    def _notify(self, groups: "list[ConsumerGroupInfo]") -> Iterator[None]:
        for group in groups:
            header = ConsumerGroupRequestHeader(group.group)
            for channel in tuple(group.clients):
                channel.invoke_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
                yield
