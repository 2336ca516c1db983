"""MessageRequestModeManager: pull or pop mode by topic and group, in `config/messageRequestMode.json`."""

from typing import Any, Final

import msgspec

from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.broker.tables.row_limits import QUEUE_NUMS_MAX, name_problem
from pocketmq.remoting.pop_bodies import MessageRequestMode
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.store.disk.config_file import ConfigFile

PULL, POP = "PULL", "POP"
MODES: Final = (PULL, POP)


class MessageRequestModeManager(ConfigManager):
    """Table of topic -> group -> mode."""

    def __init__(self, file: ConfigFile, clock: Clock, writer: TableWriter | None = None) -> None:
        super().__init__(file, clock, writer)
        self.table: dict[str, dict[str, MessageRequestMode]] = {}

    def get(self, topic: str, group: str) -> MessageRequestMode | None:
        """Return the mode of a group for a topic, or None when it was never set."""
        return self.table.get(topic, {}).get(group)

    def set(self, mode: MessageRequestMode) -> None:
        """Set the mode and persist it."""
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.changed()

    def encode(self) -> dict[str, Any]:
        return {"messageRequestModeMap": msgspec.to_builtins(self.table)}

    def decode(self, document: dict[str, Any]) -> None:
        rows = document.get("messageRequestModeMap") or {}
        self.table = msgspec.convert(rows, dict[str, dict[str, MessageRequestMode]], strict=False)

    @staticmethod
    def admitted(document: dict[str, Any]) -> dict[str, Any]:
        """Return another broker's document without the rows that a client could not set. Raises ValueError."""
        rows = msgspec.convert(document.get("messageRequestModeMap") or {}, dict[str, dict[str, Any]])
        table = {
            topic: {group: row for group, row in modes.items() if _is_possible(topic, group, row)}
            for topic, modes in rows.items()
        }
        return {"messageRequestModeMap": table}


def _is_possible(topic: str, group: str, row: Any) -> bool:
    try:
        mode = msgspec.convert(row, MessageRequestMode, strict=False)
    except ValueError:
        return False
    names = (mode.topic, mode.consumer_group) == (topic, group) and not (name_problem(topic) or name_problem(group))
    return names and mode.mode in MODES and 0 <= mode.pop_share_queue_num <= QUEUE_NUMS_MAX
