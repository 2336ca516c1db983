"""TopicConfigManager: the topics of this broker, in `config/topics.json`.

A topic is created in one of three ways: by a tool; by a send, if the default topic (TBW102) passes its config on
(PERM_INHERIT); or as the `%RETRY%` or `%DLQ%` topic of a consumer group. Each is registered with the name servers.
"""

import logging
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT,
    REPLY_TOPIC_SUFFIX,
    REVIVE_TOPIC_PREFIX,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from pocketmq.broker.tables.config_manager import CopiedRowsManager
from pocketmq.broker.tables.row_limits import name_problem, topic_problem
from pocketmq.remoting.bodies import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.event import Event
from pocketmq.runtime.table_writer import TableWriter, Written
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.format.message import SCHEDULE_TOPIC, folder_problem
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX

log = logging.getLogger("broker")

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4

TOPIC_SYS_FLAG_UNIT: Final = 1
TOPIC_SYS_FLAG_UNIT_SUB: Final = 2

TOPIC_SIZE_MAX: Final = 127
_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    (
        SCHEDULE_TOPIC,
        TIMER_TOPIC,  # 5.5.0 lets clients send there
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    )
)
SYSTEM_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {AUTO_CREATE_TOPIC_KEY_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}
"""Topics reserved on every broker (Java: TopicValidator). Each broker adds topics named after itself and its cluster."""


def topic_name_problem(topic: str) -> str | None:
    """Return why the topic name is not allowed, in the words of 4.9.4's TopicValidator, or None."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if _LEGAL_NAME.fullmatch(topic) is None:
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_SIZE_MAX:
        return f"The specified topic is longer than topic max length {TOPIC_SIZE_MAX}."
    return None


class TopicConfigManager(CopiedRowsManager[TopicConfig]):
    """The topics by name. `table` is for look-ups; changes go through the methods, which persist and register them."""

    TABLE_KEY = "topicConfigTable"
    ROWS_NAME = "topics"

    def __init__(
        self, config: BrokerConfig, file: ConfigFile, clock: Clock, *, with_lmq: bool = False,
        writer: TableWriter | None = None, is_copy: bool = False,
    ) -> None:  # fmt: skip
        """`with_lmq` (enableLmq): each name %LMQ%... counts as a topic of one queue without being in the table.

        `is_copy`: the table is that of the master of this slave; nothing is created at first use.
        """
        rate = "maxTopicCreationsPerSecond", config.max_topic_creations_per_second
        super().__init__(file, clock, TopicConfig, name_problem, writer, rate, is_copy)
        self._config = config
        self.get: Callable[[str], TopicConfig | None] = self._get_with_lmq if with_lmq else self.table.get
        """Returns the topic's config, or None."""
        # With a check point sent to the revive topic a client could have the broker copy messages that the client may
        # not read. (5.5.0 accepts such sends.)
        self.not_allowed_send_topics = NOT_ALLOWED_SEND_TOPICS | {REVIVE_TOPIC_PREFIX + config.broker_cluster_name}
        self.system_topics = SYSTEM_TOPICS | {
            config.broker_cluster_name,
            config.broker_name,
            config.broker_cluster_name + REPLY_TOPIC_SUFFIX,
        }
        if config.trace_topic_enable:
            self.system_topics |= {config.msg_trace_topic_name}
        # Not subject to the limits: they are few. (Names that only begin with the system prefix can be many.)
        self._own_topics = self.system_topics | self.not_allowed_send_topics
        self.leaving: dict[str, Written] = {}
        """Topics being deleted: no longer in the table, but their queues exist until the write is done."""
        self._uncounted = len(self._own_topics)
        self.topic_changed: Event[[str]] = Event()
        """Called with a topic that changed, and has to be registered with the name servers."""
        self._add_built_in()

    def _add_built_in(self) -> None:
        config = self._config
        cluster_perm = PERM_INHERIT | (6 if config.cluster_topic_enable else 0)
        broker_perm = PERM_INHERIT | (6 if config.broker_topic_enable else 0)
        rows = [
            (SELF_TEST_TOPIC, 1, 6),
            (BENCHMARK_TOPIC, 1024, 6),
            (config.broker_cluster_name, 16, cluster_perm),
            (config.broker_name, 1, broker_perm),
            (OFFSET_MOVED_EVENT, 1, 6),
            (SCHEDULE_TOPIC, 18, 6),
            (TRANS_HALF_TOPIC, 1, 6),
            (TIMER_TOPIC, 1, 6),
            (config.broker_cluster_name + REPLY_TOPIC_SUFFIX, 1, 6),
        ]
        if config.auto_create_topic_enable:
            rows.append((AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, 7))
        if config.trace_topic_enable:
            rows.append((config.msg_trace_topic_name, 1, 6))
        for topic, queue_nums, perm in rows:
            self.table[topic] = TopicConfig(topic, queue_nums, queue_nums, perm)

    def _get_with_lmq(self, topic: str) -> TopicConfig | None:
        is_light = topic.startswith(LMQ_PREFIX) and folder_problem(topic) is None
        return TopicConfig(topic, 1, 1) if is_light else self.table.get(topic)

    def readable_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue for a message that waited for `queue_id`: another one if the topic has fewer queues now.

        Apache's broker stores it in the old queue, which no consumer reads.
        """
        config = self.table.get(topic)
        if config is None or queue_id < config.read_queue_nums:
            return queue_id
        return queue_id % max(min(config.read_queue_nums, config.write_queue_nums), 1)

    def is_system_topic(self, topic: str) -> bool:
        """Whether users may neither create nor delete `topic`."""
        return topic in self.system_topics or topic.startswith(SYSTEM_PREFIX)

    # --- creating and deleting --------------------------------------------------------------------------------------

    def create_on_send(
        self, topic: str, default_topic: str, default_topic_queue_nums: int, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """Return the topic that a send names, created from its default topic; None when that does not allow it."""
        existing = self.table.get(topic)
        if existing is not None:
            return existing
        default = self.table.get(default_topic)
        if default is None or not default.perm & PERM_INHERIT:
            log.info("topic %s is not created: %s does not exist or lacks PERM_INHERIT", topic, default_topic)
            return None
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not self._config.auto_create_topic_enable:
            return None  # an older topics.json may still have TBW102 with PERM_INHERIT
        queue_nums = max(min(default_topic_queue_nums, default.write_queue_nums), 0)
        perm = default.perm & ~PERM_INHERIT
        created = TopicConfig(topic, queue_nums, queue_nums, perm, default.topic_filter_type, topic_sys_flag)
        self._put(created)
        self.note_created(topic)
        return created

    def create_on_send_back(
        self, topic: str, queue_nums: int, topic_sys_flag: int = 0, *, is_counted: bool = False
    ) -> TopicConfig:
        """Return the `%RETRY%` or `%DLQ%` topic of a group, created if needed. Raises ValueError for an invalid name.

        `is_counted`: the rate limit has already counted it, together with its group.
        """
        existing = self.table.get(topic)
        if existing is not None:
            return existing
        return self._put(TopicConfig(topic, queue_nums, queue_nums, topic_sys_flag=topic_sys_flag), is_counted)

    def update(self, *topic_configs: TopicConfig) -> None:
        """Create topics or replace their configs, all or none. A config without attributes keeps the present ones.

        Raises ValueError for an invalid name, RemotingError when a limit on the number or the rate of new topics is reached.
        """
        for topic_config in topic_configs:
            self.check_can_create(topic_config.topic_name)
        new = {one.topic_name for one in topic_configs} - self.table.keys() - self._own_topics
        self._check_room(len(new))
        for topic_config in topic_configs:
            present = self.table.get(topic_config.topic_name)
            if present is not None and topic_config.attributes is None:
                topic_config.attributes = present.attributes
            self._put(topic_config, True)

    def check_can_create(self, topic: str) -> None:
        """Raises RemotingError while `topic` is being deleted, and ValueError for an invalid name."""
        problem = name_problem(topic)
        if problem is not None:
            raise ValueError(problem)
        if topic in self.leaving:
            raise RemotingError(ResponseCode.SYSTEM_BUSY, f"topic[{topic}] is being deleted, try again")

    def _put(self, topic_config: TopicConfig, is_counted: bool = False) -> TopicConfig:
        topic = topic_config.topic_name
        self.check_can_create(topic)
        if self._is_copy:
            return topic_config
        if topic not in self.table and topic not in self._own_topics:
            self._check_room(1, is_counted)
        self.table.put(topic, topic_config)
        self.advance()
        self.topic_changed(topic)
        return topic_config

    def delete(self, name: str) -> bool:
        """Delete a topic from the table; the store deletes its queues. Return False when it does not exist."""
        is_deleted = super().delete(name)
        if is_deleted:
            self.topic_changed(name)
        return is_deleted

    def update_order(self, order_topics: dict[str, str]) -> None:
        """Mark exactly the topics in the name server's ORDER_TOPIC_CONFIG as ordered; a slave takes that from its master."""
        if self._is_copy:
            return
        changed = [(name, config) for name, config in self.table.items() if config.order != (name in order_topics)]
        for name, config in changed:
            self.table.put(name, msgspec.structs.replace(config, order=not config.order))
        if changed:
            self.advance()

    def row_problem(self, name: str, row: TopicConfig) -> str | None:
        return topic_problem(name, row)

    @property
    def room(self) -> tuple[str, int]:
        return "maxTopics", self._config.max_topics

    # --- the file ---------------------------------------------------------------------------------------------------

    def decode(self, document: dict[str, Any]) -> None:
        super().decode(document)
        # TBW102 follows the broker's config, not the file.
        if self._config.auto_create_topic_enable:
            queue_nums = self._config.default_topic_queue_nums
            default = self.table[AUTO_CREATE_TOPIC_KEY_TOPIC]
            default.read_queue_nums, default.write_queue_nums, default.perm = queue_nums, queue_nums, 7
