"""SubscriptionGroupManager: the consumer groups of this broker, in `config/subscriptionGroup.json`."""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.names import RETRY_PREFIX
from pocketmq.broker.tables import attributes
from pocketmq.broker.tables.config_manager import CopiedRowsManager
from pocketmq.broker.tables.row_limits import group_row_problem, name_problem
from pocketmq.remoting.bodies import SubscriptionGroupConfig
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX

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


def group_problem(group: str) -> str | None:
    """Return why the name is not allowed for a group, or None. Its retry and dead-letter topics must be storable."""
    return name_problem(RETRY_PREFIX + group)


class SubscriptionGroupManager(CopiedRowsManager[SubscriptionGroupConfig]):
    """The consumer groups by name. `table` is for listing; look-ups go through `find`, which may create a group."""

    TABLE_KEY = "subscriptionGroupTable"
    ROWS_NAME = "consumer groups"

    def __init__(
        self, config: BrokerConfig, file: ConfigFile, clock: Clock, *, with_lmq: bool = False,
        writer: TableWriter | None = None, is_copy: bool = False,
    ) -> None:  # fmt: skip
        """`with_lmq` (enableLmq): each name %LMQ%... counts as a group without being in the table.

        `is_copy`: the table is that of the master of this slave; a group used first here is not added to it.
        """
        rate = "maxGroupCreationsPerSecond", config.max_group_creations_per_second
        super().__init__(file, clock, SubscriptionGroupConfig, group_problem, writer, rate, is_copy)
        self._config = config
        self.get: Callable[[str], SubscriptionGroupConfig | None] = self._get_with_lmq if with_lmq else self.table.get
        """Returns the group's config, or None; never creates a group."""
        for group in BUILT_IN_GROUPS:
            self.table[group] = SubscriptionGroupConfig(group)

    def _get_with_lmq(self, group: str) -> SubscriptionGroupConfig | None:
        is_light = group.startswith(LMQ_PREFIX) and group_problem(group) is None
        return SubscriptionGroupConfig(group) if is_light else self.table.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the config of `group`; it is created with the defaults at first use if autoCreateSubscriptionGroup is on.

        Raises RemotingError when a limit on the number or the rate of new groups is reached.
        """
        found = self.get(group)
        if found is not None or not (self._config.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)):
            return found
        problem = group_problem(group)
        if problem is not None:
            log.warning("a consumer group is not created: its retry %s", problem)
            return None
        if self._is_copy:
            return SubscriptionGroupConfig(group)
        self._check_room(1)
        found = SubscriptionGroupConfig(group)
        self.note_created(group)
        self.table.put(group, found)
        self.advance()
        return found

    def update(self, *group_configs: SubscriptionGroupConfig) -> None:
        """Create or replace groups, all or none. A field that is None keeps its value: 4.9's tools do not send 5.x's fields.
        The attributes are changes, as 5.x's tools send them.

        Raises ValueError for a name that is not possible in a retry topic or an unsupported attribute, and RemotingError
        when a limit on the number or the rate of new groups is reached.
        """
        for group_config in group_configs:
            problem = self.row_problem(group_config.group_name, group_config)
            if problem is not None:
                raise ValueError(problem)
        changed = [self._changed_attributes(group_config) for group_config in group_configs]
        new = {one.group_name for one in group_configs} - self.table.keys()
        self._check_room(len(new))
        for group_config, group_config.attributes in zip(group_configs, changed, strict=True):
            self._put(group_config)
        if group_configs:
            self.advance()

    def row_problem(self, name: str, row: SubscriptionGroupConfig) -> str | None:
        problem = group_problem(name)
        return f"its retry {problem}" if problem else group_row_problem(name, row)

    @property
    def room(self) -> tuple[str, int]:
        return "maxSubscriptionGroups", self._config.max_subscription_groups

    def _changed_attributes(self, group_config: SubscriptionGroupConfig) -> dict[str, str] | None:
        if not group_config.attributes:
            return None
        present = self.table.get(group_config.group_name, group_config)
        kept = {} if present is group_config else present.attributes or {}
        return attributes.changed(attributes.GROUP, kept, group_config.attributes.items())

    def _put(self, group_config: SubscriptionGroupConfig) -> None:
        name = group_config.group_name
        present = self.table.get(name, group_config)
        for field, value in msgspec.structs.asdict(group_config).items():
            if value is None:
                setattr(group_config, field, getattr(present, field))
        self.table.put(name, group_config)
