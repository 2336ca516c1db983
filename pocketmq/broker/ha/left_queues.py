"""LeftQueues: queues of a slave whose topic was deleted at its master.

A slave's queues are made from the log, which has no record of a deletion. So queues of a deleted topic, and the consumer
offsets in it, would be left, and be those of a new topic with its name. A topic is looked at when it is no longer in the
master's table, or when one of its queues begins at 0, as all do in a new topic. A queue that ends at the master before it
ended here is not that of the slave's records: it is dropped here, and with it the consumer offsets of the topic. Apache's
master sends its log before it has made queues of it, so it is asked once it has dispatched what the slave has.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from pocketmq.broker.tables.consumer_offset import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.store.format.message import Arrival
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger("broker")


class LeftQueues:
    """Finds and drops such queues."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetManager, topics: TopicConfigManager) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        # Topics to be looked at, and their queues that have begun since.
        self._begun: dict[str, set[int]] = {}
        self._deleted: set[str] = set()

    @property
    def has_some(self) -> bool:
        """Whether there are topics to be looked at."""
        return bool(self._begun)

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Note the queues that begin at 0."""
        for one in arrivals:
            if one.queue_offset == len(one.tags_codes):
                self._begun.setdefault(one.topic, set()).add(one.queue_id)

    def deleted(self, topics: Iterable[str]) -> None:
        """Note that topics are no longer in the master's table."""
        for topic in topics:
            self._begun.setdefault(topic, set())
            self._deleted.add(topic)

    async def drop(
        self,
        is_dispatched: Callable[[int], Awaitable[bool]],
        max_offset: Callable[[str, int], Awaitable[int]],
        run: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        """Drop what the master has dropped; nothing if that is not known yet.

        `is_dispatched` asks the master whether its queues have its log up to an offset, `max_offset` for the end of a queue;
        `run` runs a blocking call.
        """
        # All queues of a topic that the master does not have: the log of a new slave has its records, too.
        begun = {
            topic: frozenset(queue_ids if self._topics.get(topic) is not None else ())
            for topic, queue_ids in self._begun.items()
        }
        noted = {topic: len(queue_ids) for topic, queue_ids in self._begun.items()}
        left: dict[str, list[ConsumeQueue]] = defaultdict(list)
        ends: dict[ConsumeQueue, tuple[int, int]] = {}
        for queue in self._store.queues:
            if queue.max_offset and queue.queue_id not in begun.get(queue.topic, (queue.queue_id,)):
                left[queue.topic].append(queue)
                ends[queue] = queue.max_offset, queue.max_physical_offset
        if ends and not await is_dispatched(max(physical_end for _, physical_end in ends.values())):
            return
        stale = self._topics_with_stale_offsets(begun)
        waiting = set()
        for topic, queues in left.items():
            gone = [queue for queue in queues if await max_offset(topic, queue.queue_id) < ends[queue][0]]
            if gone:
                await run(partial(self._store.mark_dropped, {topic}, max(ends[queue][1] for queue in gone)))
                for queue in gone:
                    if queue.max_offset == ends[queue][0]:  # not begun again meanwhile
                        self._store.queues.drop_queue(topic, queue.queue_id)
                stale.add(topic)
                log.info("topic %s was deleted at the master: %d queues of it are dropped", topic, len(gone))
            if topic in self._deleted and not begun[topic] and len(gone) < len(queues):
                waiting.add(topic)  # the master is about to drop its queues
        for topic in stale - waiting:
            self._offsets.delete_topic(topic)
        self._deleted &= waiting
        for topic, count in noted.items():
            if topic not in waiting and len(self._begun[topic]) == count:
                del self._begun[topic]

    def _topics_with_stale_offsets(self, begun: Mapping[str, frozenset[int]]) -> set[str]:
        """Return the topics that are deleted, or have consumer offsets beyond the ends of their new queues."""
        stale = set()
        for key, queues in self._offsets.table.items():
            topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
            if (queue_ids := begun.get(topic)) is not None and (
                not queue_ids or any(offset > self._store.max_offset(topic, at) for at, offset in queues.items())
            ):
                stale.add(topic)
        return stale
