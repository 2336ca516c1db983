"""ConsumerOrderInfoManager: what groups that pop in order have of each queue, in `config/consumerOrderInfo.json`.

Of a queue that is popped in order nobody gets more as long as something of it is neither acknowledged nor visible again. A
pop with the attempt id of the one before it is the same one, tried again: it gets the same messages.
"""

from concurrent.futures import Executor
from typing import Any, Final

import msgspec

from pocketmq.broker.context import Context
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.runtime.event import Event
from pocketmq.store.disk.config_file import ConfigFile

_KEPT_MS: Final = 24 * 3_600_000


class OrderInfo(msgspec.Struct, rename={"pop_time_ms": "popTime", "invisible_time_ms": "i", "offsets": "o",
                                        "visible_ms": "ot", "consumed": "oc", "last_ms": "l", "acknowledged": "cm",
                                        "attempt_id": "a"}):  # fmt: skip
    """The messages that were popped last. In the file all offsets but the first are counted from it."""

    pop_time_ms: int = 0
    invisible_time_ms: int = 0
    offsets: list[int] = msgspec.field(default_factory=list)
    visible_ms: dict[int, int] | None = None
    """Queue offset -> when it is visible again, of those for which that was changed."""
    consumed: dict[int, int] | None = None
    """Queue offset -> how often it was popped before."""
    last_ms: int = 0
    acknowledged: int = 0
    """Bit n: message n of `offsets`."""
    attempt_id: str | None = None

    def queue_offsets(self) -> list[int]:
        """Of the messages."""
        return self.offsets[:1] + [self.offsets[0] + difference for difference in self.offsets[1:]]

    def open_offsets(self) -> list[int]:
        """Of those that are not acknowledged."""
        return [at for index, at in enumerate(self.queue_offsets()) if not self.acknowledged >> index & 1]

    def blocked_to_ms(self) -> int:
        """When the first of the open ones is visible; all of them are, then: what is visible first is popped first."""
        changed = self.visible_ms or {}
        return max((changed.get(at, self.pop_time_ms + self.invisible_time_ms) for at in self.open_offsets()), default=0)


class ConsumerOrderInfoManager(ConfigManager):
    """By `topic@group`, then queue id."""

    def __init__(self, context: Context, file: ConfigFile) -> None:
        super().__init__(file, context.clock)
        self._timers = context.timers
        self._steps = context.steps
        self.table: dict[str, dict[int, OrderInfo]] = {}
        self._is_dirty = False
        self.freed: Event[[str, int]] = Event()
        """The messages of a queue (topic, queue id) may be popped again."""

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt_id: str | None, now_ms: int) -> bool:
        """Whether somebody has messages of the queue, other than by this attempt."""
        info = self.table.get(f"{topic}@{group}", {}).get(queue_id)
        if info is None or not info.offsets or (attempt_id is not None and attempt_id == info.attempt_id):
            return False
        return now_ms < self._blocked_to_ms(info)

    def _blocked_to_ms(self, info: OrderInfo) -> int:
        # Times in the table are those that the calendar showed at the pop.
        return info.blocked_to_ms() + self._steps.shift_since_ms(info.pop_time_ms)

    def calendar_set(self) -> None:
        """The calendar was set: have the timers run that follow it anew."""
        for key, queues in self.table.items():
            for queue_id, info in queues.items():
                self._arm(key.partition("@")[0], queue_id, info)

    def popped(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, pop_time_ms: int, invisible_time_ms: int,
        queue_offsets: list[int],
    ) -> dict[int, int]:  # fmt: skip
        """Take note of what was popped; how often each message was popped before."""
        queues = self.table.setdefault(f"{topic}@{group}", {})
        before, counts = queues.get(queue_id), dict.fromkeys(queue_offsets, 0)
        if before is not None and before.offsets:
            is_again = attempt_id is not None and attempt_id == before.attempt_id
            known = before.consumed or {}
            counts |= {at: known.get(at, 0) + (not is_again) for at in before.queue_offsets() if at in counts}
        first = queue_offsets[0]
        queues[queue_id] = OrderInfo(
            pop_time_ms, invisible_time_ms, [first, *(at - first for at in queue_offsets[1:])],
            consumed={at: count for at, count in counts.items() if count} or None,
            last_ms=self.clock.message_time_ms(), attempt_id=attempt_id,
        )  # fmt: skip
        self._changed(topic, queue_id, queues[queue_id])
        return counts

    def acknowledged(self, topic: str, group: str, queue_id: int, queue_offset: int, pop_time_ms: int) -> int | None:
        """Take note of an ack; the group's consumer offset then, None when it is of a pop that is over."""
        info = self.table.get(f"{topic}@{group}", {}).get(queue_id)
        if info is None:
            return queue_offset + 1
        offsets = info.queue_offsets()
        if info.pop_time_ms != pop_time_ms or queue_offset not in offsets:
            return None
        info.acknowledged |= 1 << offsets.index(queue_offset)
        self._changed(topic, queue_id, info)
        return next(iter(info.open_offsets()), offsets[-1] + 1)

    def hide(self, topic: str, group: str, queue_id: int, queue_offset: int, pop_time_ms: int, visible_ms: int) -> None:
        """Let one message be seen again at `visible_ms`."""
        info = self.table.get(f"{topic}@{group}", {}).get(queue_id)
        if info is not None and info.pop_time_ms == pop_time_ms:
            info.visible_ms = (info.visible_ms or {}) | {queue_offset: visible_ms}
            self._changed(topic, queue_id, info)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Let the queue be popped, whoever has something of it."""
        if self.table.get(f"{topic}@{group}", {}).pop(queue_id, None) is not None:
            self._is_dirty = True

    def _changed(self, topic: str, queue_id: int, info: OrderInfo) -> None:
        self._is_dirty = True
        self._arm(topic, queue_id, info)

    def _arm(self, topic: str, queue_id: int, info: OrderInfo) -> None:
        if info.open_offsets():
            self._timers.at_ms(self._blocked_to_ms(info), lambda: self.freed(topic, queue_id))

    # --- the file ---------------------------------------------------------------------------------------------------

    def persist(self) -> None:
        """Write the file, if something changed since it was last written."""
        if self._is_dirty:
            super().persist()

    def persist_in(self, executor: Executor) -> None:
        """The same from another thread."""
        if self._is_dirty:
            super().persist_in(executor)

    def encode(self) -> dict[str, Any]:
        self._is_dirty = False
        oldest_ms = self.clock.message_time_ms() - _KEPT_MS
        for key in tuple(self.table):
            self.table[key] = {at: info for at, info in self.table[key].items() if info.last_ms > oldest_ms}
            if not self.table[key]:
                del self.table[key]
        return {"table": msgspec.to_builtins(self.table)}

    def decode(self, document: dict[str, Any]) -> None:
        for key, queues in (document.get("table") or {}).items():
            plain = {at: {name: item for name, item in row.items() if item is not None} for at, row in queues.items()}
            self.table[key] = msgspec.convert(plain, dict[int, OrderInfo], strict=False)
