"""SubscriptionGroupManager: the consumer groups of this broker, in `config/subscriptionGroup.json`."""

import logging
from typing import Any, Final

from broker.config import BrokerConfig
from broker.config_manager import CarryingTable, ConfigManager
from remoting.bodies import SubscriptionGroupConfig
from runtime.clock import Clock
from store.config_file import ConfigFile

log = logging.getLogger("broker")

BUILT_IN_GROUPS: Final = (
    "SELF_TEST_C_GROUP",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


class SubscriptionGroupManager(ConfigManager):
    """`table` by name is for listing; look-ups go through `find`, which makes an unknown group where that is allowed."""

    def __init__(self, config: BrokerConfig, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self._config = config
        self.table: CarryingTable[SubscriptionGroupConfig] = CarryingTable(SubscriptionGroupConfig)
        self.get = self.table.get
        """`get(group) -> SubscriptionGroupConfig | None`: never makes one."""
        for group in BUILT_IN_GROUPS:
            self.table[group] = SubscriptionGroupConfig(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The config of `group`, made with the defaults at first use unless autoCreateSubscriptionGroup is off."""
        found = self.table.get(group)
        if found is None and (self._config.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)):
            found = SubscriptionGroupConfig(group)
            log.info("consumer group %s is created at its first use", group)
            self.update(found)
        return found

    def update(self, group_config: SubscriptionGroupConfig) -> None:
        """Create or replace a group."""
        self.table[group_config.group_name] = group_config
        self.next_version()
        self.persist()

    def delete(self, group: str) -> bool:
        """Forget `group`. False when it did not exist."""
        if self.table.pop(group, None) is None:
            return False
        self.next_version()
        self.persist()
        return True

    def encode(self) -> dict[str, Any]:
        return {"dataVersion": self.version_document(), "subscriptionGroupTable": self.table.encode()}

    def decode(self, document: dict[str, Any]) -> None:
        self.table.decode(document.get("subscriptionGroupTable") or {})
