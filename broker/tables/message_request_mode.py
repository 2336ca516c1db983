"""MessageRequestModeManager: which groups pop from which topics, in `config/messageRequestMode.json`."""

from typing import Any, Final

import msgspec

from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.remoting.pop_bodies import MessageRequestMode
from pocketmq.runtime.clock import Clock
from pocketmq.store.disk.config_file import ConfigFile

PULL, POP = "PULL", "POP"
MODES: Final = (PULL, POP)


class MessageRequestModeManager(ConfigManager):
    """By topic, then group."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self.table: dict[str, dict[str, MessageRequestMode]] = {}

    def get(self, topic: str, group: str) -> MessageRequestMode | None:
        """What was set for a group, or None."""
        return self.table.get(topic, {}).get(group)

    def set(self, mode: MessageRequestMode) -> None:
        """Set it, and keep it."""
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.changed()

    def encode(self) -> dict[str, Any]:
        return {"messageRequestModeMap": msgspec.to_builtins(self.table)}

    def decode(self, document: dict[str, Any]) -> None:
        rows = document.get("messageRequestModeMap") or {}
        self.table = msgspec.convert(rows, dict[str, dict[str, MessageRequestMode]], strict=False)
