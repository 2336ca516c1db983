"""ConsumerFilterManager: the SQL92 subscriptions of groups, in `config/consumerFilter.json`.

They come from heartbeats. A subscription is *dead* when its group is gone or no longer subscribes to the topic; it is kept
for `filterDataCleanTimeSpan`, so that the bitmaps of messages stored in that time include it. Its *born time* is the time
of the last change of its expression: bitmaps of older messages do not apply to it. All this, and the file, is as in Apache.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Executor
from time import monotonic
from typing import Any, Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.filter.bloom_filter import BloomFilter, bit_mask
from pocketmq.broker.filter.expression_filter import ExpressionFilter, expression_filter
from pocketmq.broker.filter.subscription import SQL92, is_tag_type
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.remoting.bodies import SubscriptionData
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.peer_text import clipped
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.format.record import entries_of
from pocketmq.store.queue.record_filter import BUDGET_S, NotCompiled

log = logging.getLogger("broker")

DEAD_AT_LOAD_MS: Final = 30_000
"""A subscription that is alive in the file is loaded as dead; its dead time is this long before the start."""
FILTERS_MAX: Final = 10_000
"""Maximum number of SQL92 subscriptions."""
FILTERS_SIZE_MAX: Final = 4 << 20
"""Maximum characters of all SQL92 subscriptions: their functions are many times larger."""


class BloomFilterData(msgspec.Struct, rename="camel"):
    """Bit positions of a subscription in a bitmap of `bit_num` bits."""

    bit_pos: list[int]
    bit_num: int


class ConsumerFilterData(msgspec.Struct, rename="camel"):
    """A group's subscription to a topic. Times are message time in ms; `client_version` is the subscription's subVersion."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: int
    client_version: int
    bloom_filter_data: BloomFilterData | None = None
    dead_time: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time

    def document(self) -> dict[str, Any]:
        """Return the row as Apache writes it."""
        return {**msgspec.to_builtins(self), "dead": self.is_dead}


class ConsumerFilterManager(ConfigManager):
    """The SQL92 subscriptions by topic, then group. Those of the file are compiled when first needed."""

    def __init__(self, config: BrokerConfig, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self.bloom_filter = BloomFilter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        self.table: dict[str, dict[str, ConsumerFilterData]] = {}
        self._config = config
        self._kept_ms = config.filter_data_clean_time_span
        self._topics_of: dict[str, set[str]] = {}
        self._count = self._size = 0
        self._filters: dict[tuple[str, str], ExpressionFilter] = {}
        self._bitmaps_s = 0.0
        """Time spent on bitmaps since the last rest."""
        self._bitmaps_from_s = 0.0
        """Monotonic time of the end of the rest."""
        self._is_dirty = False
        if config.enable_property_filter:
            # The first compilation also builds the parser; later it would delay other requests.
            from pocketmq.broker.filter.compiled_expressions import compilation

            for _ in compilation("a = 1"):
                pass

    # --- registering ------------------------------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> Iterator[None]:
        """Update a group from its heartbeat, in small steps. Its filters of other topics become dead; an invalid expression
        is logged."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                present = self.get(subscription.topic, group)
                is_new = present is None or present.expression != subscription.sub_string
                if is_new or (subscription.topic, group) not in self._filters:  # also one from an earlier process
                    yield from self._compilation(subscription)
                self._register(group, subscription)
        self.unregister(group, topics)

    def _compilation(self, subscription: SubscriptionData) -> Iterator[None]:
        from pocketmq.broker.filter.compiled_expressions import compilation

        expression = subscription.sub_string
        is_short = len(expression) <= self._config.max_filter_expression_length
        if subscription.expression_type == SQL92 and is_short and self._has_room(expression):
            yield from compilation(expression)

    def _has_room(self, expression: str) -> bool:
        return self._count < FILTERS_MAX and self._size + len(expression) <= FILTERS_SIZE_MAX

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, expression, kind = subscription.topic, subscription.sub_string, subscription.expression_type
        present = self.get(topic, group)
        if present is not None and subscription.sub_version < present.client_version:
            return
        bits = BloomFilterData(self.bloom_filter.positions(f"{group}#{topic}"), self.bloom_filter.bit_count)
        if present is not None and (
            subscription.sub_version == present.client_version
            or (present.expression, present.expression_type, present.bloom_filter_data) == (expression, kind, bits)
        ):
            if present.is_dead or present.client_version != subscription.sub_version:
                present.dead_time, present.client_version = 0, subscription.sub_version
                self._is_dirty = True
            return
        self._drop(topic, group)
        size_max = self._config.max_filter_expression_length
        try:
            if not self._has_room(expression):
                raise ValueError(f"the broker has {self._count} subscriptions of {self._size} characters, the limit")
            expression_filter(kind, expression, size_max)
        except NotCompiled:
            pass  # it is compiled when it is first needed
        except ValueError as error:
            self._log_refusal(group, topic, expression, error)
            return
        now = self.clock.message_time_ms()
        self._keep(ConsumerFilterData(group, topic, expression, kind, now, subscription.sub_version, bits))
        log.info("group %s subscribes to %s by %s", group, topic, expression)

    def _log_refusal(self, group: str, topic: str, expression: str, error: ValueError) -> None:
        """Log an invalid expression. The client learns of it by its pulls, which find no filter."""
        log.warning("group %s cannot subscribe to %s by %r: %s", group, topic, expression, clipped(error))

    def _keep(self, data: ConsumerFilterData) -> None:
        self.table.setdefault(data.topic, {})[data.consumer_group] = data
        self._topics_of.setdefault(data.consumer_group, set()).add(data.topic)
        self._count += 1
        self._size += len(data.expression)
        self._is_dirty = True

    def _drop(self, topic: str, group: str) -> None:
        """Delete a subscription, if it exists."""
        groups = self.table.get(topic)
        data = None if groups is None else groups.pop(group, None)
        if groups is None or data is None:
            return
        if not groups:
            del self.table[topic]
        topics = self._topics_of[group]
        topics.discard(topic)
        if not topics:
            del self._topics_of[group]
        self._filters.pop((topic, group), None)
        self._count -= 1
        self._size -= len(data.expression)
        self._is_dirty = True

    def unregister(self, group: str, kept: Container[str] = ()) -> None:
        """Mark the subscriptions of a group dead, except those to the topics `kept`: all of them after its last consumer
        left."""
        for topic in self._topics_of.get(group, ()):
            data = self.table[topic][group]
            if topic not in kept and not data.is_dead:
                data.dead_time = max(self.clock.message_time_ms(), data.born_time)
                self._is_dirty = True

    def clean(self) -> None:
        """Delete subscriptions dead for longer than `filterDataCleanTimeSpan`."""
        oldest_ms = self.clock.message_time_ms() - self._kept_ms
        for topic, groups in list(self.table.items()):
            for group in [group for group, data in groups.items() if data.is_dead and data.dead_time <= oldest_ms]:
                self._drop(topic, group)

    # --- filtering --------------------------------------------------------------------------------------------------

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return the subscription of a group, dead or not, or None."""
        groups = self.table.get(topic)
        return None if groups is None else groups.get(group)

    def record_filter(self, topic: str, group: str) -> ExpressionFilter | None:
        """Return the filter of a subscription, or None. Raises ValueError for an invalid expression, and NotCompiled."""
        found = self._filters.get((topic, group))
        if found is None:
            data = self.get(topic, group)
            if data is None:
                return None
            try:
                size_max = self._config.max_filter_expression_length
                judge = expression_filter(data.expression_type, data.expression, size_max).judge
            except ValueError as error:
                self._log_refusal(group, topic, data.expression, error)
                self._drop(topic, group)
                raise
            mask = bit_mask(data.bloom_filter_data.bit_pos) if data.bloom_filter_data else 0
            found = ExpressionFilter(judge, data.born_time, mask, self.bloom_filter.bit_count // 8)
            self._filters[topic, group] = found
        return found

    def bitmap(self, topic: str, entries: str) -> bytes:
        """Return the bitmap of a message, with the bits of all groups that want it; empty for a topic without such groups.

        Groups whose expression is not compiled yet count as wanting it. Bitmaps may take half of the time only, since they
        are made for all messages of a turn: between them some are empty, which rules no message out.
        """
        groups, began_s = self.table.get(topic), monotonic()
        if not groups or began_s < self._bitmaps_from_s:
            return b""
        positions: list[int] = []
        for group, data in list(groups.items()):
            try:
                record_filter = self.record_filter(topic, group)
            except NotCompiled:
                record_filter = None
            except ValueError:
                continue
            if data.bloom_filter_data and (record_filter is None or record_filter.judge((entries,))[0]):
                positions += data.bloom_filter_data.bit_pos
            if (now := monotonic()) > began_s + BUDGET_S:
                self._bitmaps_from_s = now + now - began_s
                return b""
        bitmap, now = self.bloom_filter.bitmap(positions), monotonic()
        self._bitmaps_s += now - began_s
        if self._bitmaps_s > BUDGET_S:
            self._bitmaps_from_s, self._bitmaps_s = now + self._bitmaps_s, 0.0
        return bitmap

    def bitmaps(self, message_at: Callable[[int], memoryview | None]) -> Callable[[str, int], bytes]:
        """Return the function (topic, physical offset) -> bitmap for the store; `message_at` reads the records."""

        def bitmap_of(topic: str, physical_offset: int) -> bytes:
            record = message_at(physical_offset) if topic in self.table else None
            return b"" if record is None else self.bitmap(topic, entries_of(record, 0))

        return bitmap_of

    # --- the file ---------------------------------------------------------------------------------------------------

    def persist_in(self, executor: Executor) -> None:
        """Write the file from another thread if anything changed since the last write."""
        self.clean()
        if self._is_dirty:
            self._is_dirty = False
            super().persist_in(executor)

    def encode(self) -> dict[str, Any]:
        self.clean()
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {group: data.document() for group, data in groups.items()},
                    "topic": topic,
                }
                for topic, groups in self.table.items()
            }
        }

    def decode(self, document: dict[str, Any]) -> None:
        """Load the file. All of it is ignored if its Bloom filter has another configuration, as in Apache."""
        dead_ms = self.clock.message_time_ms() - DEAD_AT_LOAD_MS
        table: dict[str, dict[str, ConsumerFilterData]] = {}
        for topic, rows in (document.get("filterDataByTopic") or {}).items():
            try:
                found = msgspec.convert(rows["groupFilterData"], dict[str, ConsumerFilterData], strict=False)
            except (KeyError, TypeError, ValueError) as error:
                log.error("%s: filters of topic %r are ignored: %s", self.file.path, topic, error)
                continue
            for data in found.values():
                bits = data.bloom_filter_data
                if bits is None or (bits.bit_num, len(bits.bit_pos)) != (
                    self.bloom_filter.bit_count,
                    self.bloom_filter.hash_count,
                ):
                    log.warning("%s was written with other Bloom filter settings and is ignored", self.file.path)
                    return
                if data.dead_time == 0:
                    data.dead_time = max(dead_ms, data.born_time)
            table[topic] = found
        self.table, self._topics_of, self._count, self._size = {}, {}, 0, 0
        for topic, found in table.items():
            for group, data in found.items():
                data.topic, data.consumer_group = topic, group
                self._keep(data)
        self._is_dirty = False
