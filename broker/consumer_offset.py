"""ConsumerOffsetManager: how far each group is in each queue, in `config/consumerOffset.json`.

Commits change memory only; the file follows every `flushConsumerOffsetInterval` and at a clean stop. A crash therefore sets
consumers back by some seconds: they see messages again, never too few.
"""

from concurrent.futures import Executor
from typing import Any, Final

from broker.config_manager import ConfigManager
from runtime.clock import Clock
from store.config_file import ConfigFile

TOPIC_GROUP_SEPARATOR: Final = "@"


class ConsumerOffsetManager(ConfigManager):
    """Consumer offsets by `topic@group`, then queue id."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self.table: dict[str, dict[int, int]] = {}
        self._is_dirty = False

    def commit(self, group: str, topic: str, queue_id: int, consumer_offset: int) -> None:
        """Remember where `group` is. Going back is allowed: a consumer may want messages again."""
        key = f"{topic}@{group}"
        queues = self.table.get(key)
        if queues is None:
            queues = self.table[key] = {}
        queues[queue_id] = consumer_offset
        self._is_dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The consumer offset, or -1 when there is none."""
        queues = self.table.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Queue id -> consumer offset of what `group` committed in `topic`; not to be changed."""
        return self.table.get(f"{topic}@{group}", {})

    def topics_of(self, group: str) -> list[str]:
        """Topics in which `group` has offsets (Java: whichTopicByConsumer)."""
        end = TOPIC_GROUP_SEPARATOR + group
        return [key[: -len(end)] for key in self.table if key.endswith(end)]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets in `topic` (Java: whichGroupByTopic)."""
        start = topic + TOPIC_GROUP_SEPARATOR
        return [key[len(start) :] for key in self.table if key.startswith(start)]

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Give `target_group` the offsets that `source_group` has in `topic`."""
        queues = self.table.get(f"{topic}@{source_group}")
        if queues is not None:
            self.table[f"{topic}@{target_group}"] = dict(queues)
            self._is_dirty = True

    def delete_group(self, group: str) -> None:
        """Forget all offsets of `group`."""
        for topic in self.topics_of(group):
            del self.table[f"{topic}@{group}"]
            self._is_dirty = True

    def persist_in(self, executor: Executor) -> None:
        """Write the file from another thread, if something was committed since it was last written."""
        if self._is_dirty:
            self._is_dirty = False
            super().persist_in(executor)

    def encode(self) -> dict[str, Any]:
        return {"offsetTable": {key: dict(queues) for key, queues in self.table.items()}}

    def decode(self, document: dict[str, Any]) -> None:
        for key, queues in (document.get("offsetTable") or {}).items():
            if TOPIC_GROUP_SEPARATOR in key:
                self.table[key] = {int(queue_id): int(consumer_offset) for queue_id, consumer_offset in queues.items()}
