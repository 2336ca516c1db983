"""ConsumerOrderInfoManager: messages that groups have popped in order, by queue, in `config/consumerOrderInfo.json`.

A queue that is popped in order yields no more messages while one of the last pop is neither acknowledged nor visible again.
A pop with the attempt id of the previous one is a repetition of it and gets the same messages.
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
    """Messages of the last pop of a queue. In the file all offsets but the first are relative to it."""

    pop_time_ms: int = 0
    invisible_time_ms: int = 0
    offsets: list[int] = msgspec.field(default_factory=list)
    visible_ms: dict[int, int] | None = None
    """Queue offset -> time at which it is visible again, for messages whose time was changed."""
    consumed: dict[int, int] | None = None
    """Queue offset -> number of earlier pops."""
    last_ms: int = 0
    acknowledged: int = 0
    """Bit map over `offsets`."""
    attempt_id: str | None = None

    def queue_offsets(self) -> list[int]:
        """Return the queue offsets of the messages."""
        return self.offsets[:1] + [self.offsets[0] + difference for difference in self.offsets[1:]]

    def open_offsets(self) -> list[int]:
        """Return the queue offsets of messages not acknowledged."""
        return [at for index, at in enumerate(self.queue_offsets()) if not self.acknowledged >> index & 1]

    def blocked_to_ms(self) -> int:
        """Return when the queue may be popped again: when all open messages are visible, so that the order is kept."""
        changed = self.visible_ms or {}
        return max((changed.get(at, self.pop_time_ms + self.invisible_time_ms) for at in self.open_offsets()), default=0)


class ConsumerOrderInfoManager(ConfigManager):
    """OrderInfo by `topic@group`, then queue id."""

    def __init__(self, context: Context, file: ConfigFile) -> None:
        super().__init__(file, context.clock)
        self._context = context
        self.table: dict[str, dict[int, OrderInfo]] = {}
        self._is_dirty = False
        self.freed: Event[[str, int]] = Event()
        """Called with (topic, queue id) when the messages of a queue may be popped again."""

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt_id: str | None, now_ms: int) -> bool:
        """Whether messages of the queue are held by another attempt."""
        info = self.table.get(f"{topic}@{group}", {}).get(queue_id)
        if info is None or not info.offsets or (attempt_id is not None and attempt_id == info.attempt_id):
            return False
        return now_ms < self._blocked_to_ms(info)

    def _blocked_to_ms(self, info: OrderInfo) -> int:
        # The table has times of the calendar at the pop.
        return info.blocked_to_ms() + self._context.steps.shift_since_ms(info.pop_time_ms)

    def calendar_set(self) -> None:
        """Set the timers again after the calendar was set."""
        for key, queues in self.table.items():
            for queue_id, info in queues.items():
                self._arm(key.partition("@")[0], queue_id, info)

    def popped(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, pop_time_ms: int, invisible_time_ms: int,
        queue_offsets: list[int],
    ) -> dict[int, int]:  # fmt: skip
        """Record a pop; return the number of earlier pops by queue offset."""
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
        """Record an ack; return the group's new consumer offset, or None if the ack is of an earlier pop."""
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
        """Make one message visible again at `visible_ms`."""
        info = self.table.get(f"{topic}@{group}", {}).get(queue_id)
        if info is not None and info.pop_time_ms == pop_time_ms:
            info.visible_ms = (info.visible_ms or {}) | {queue_offset: visible_ms}
            self._changed(topic, queue_id, info)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the last pop of a queue, so that no attempt blocks it."""
        if self.table.get(f"{topic}@{group}", {}).pop(queue_id, None) is not None:
            self._is_dirty = True

    def forget(self, topic: str | None = None, group: str | None = None) -> None:
        """Forget pops, because the queues of a deleted topic begin again at 0. None: of any topic, by any group."""
        for key in tuple(self.table):
            of_topic, _, of_group = key.partition("@")
            if topic in (None, of_topic) and group in (None, of_group):
                del self.table[key]
                self._is_dirty = True

    def _changed(self, topic: str, queue_id: int, info: OrderInfo) -> None:
        self._is_dirty = True
        self._arm(topic, queue_id, info)

    def _arm(self, topic: str, queue_id: int, info: OrderInfo) -> None:
        if info.open_offsets():
            self._context.timers.at_ms(self._blocked_to_ms(info), lambda: self.freed(topic, queue_id))

    # --- the file ---------------------------------------------------------------------------------------------------

    def persist(self) -> None:
        """Write the file if the table has changed."""
        if self._is_dirty:
            super().persist()

    def persist_in(self, executor: Executor) -> None:
        """Write the file in `executor` if the table has changed."""
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
