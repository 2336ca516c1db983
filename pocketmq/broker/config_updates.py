"""Changes of a broker's config by requests, and their effects: another advertised address, other permissions.

`brokerIP1` and `advertisedPort` are the address advertised to clients. As in Apache's broker, a request that changes
`listenPort` changes the advertised port: a container learns only after the start at which port it can be reached from
outside. The value is stored as `advertisedPort`, so that the next start binds the same port as this one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pocketmq.broker.config import (
    ADDRESS_KEYS,
    IGNORED_KEYS,
    UPDATABLE_KEYS,
    AdvertisedHost,
    BrokerConfig,
    advertised_host,
    check,
)
from pocketmq.broker.put.message_id import message_id_template
from pocketmq.broker.services import Services
from pocketmq.remoting.hosts import pack_host
from pocketmq.runtime.config_updates import ConfigUpdates, Rules
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.store.config import MessageStoreConfig

KEPT_FILE: Final = "config/broker.properties"
"""File of the store with the changed settings of a broker that has no config file. The name is Apache's, too."""


def config_updates(
    services: Services, port: int, file: Path | None, writer: TableWriter, more_configs: Sequence[Any] = ()
) -> ConfigUpdates:
    """Return the changes of a broker that listens on `port`. `file` None: changes are not kept over a restart.

    `more_configs` have further keys, none of which may be changed while the broker runs.
    """

    def check_both(config: BrokerConfig, store_config: MessageStoreConfig, *_: object) -> None:
        check(config, store_config)

    def prepare(config: BrokerConfig, *_: object) -> AdvertisedHost | None:
        # A host name is looked up, which may take long.
        return advertised_host(config) if config.broker_ip1 != services.config.broker_ip1 else None

    rules = Rules(UPDATABLE_KEYS, IGNORED_KEYS, check_both, prepare, {"listenPort": "advertisedPort"})
    updates = ConfigUpdates((services.config, services.store.config, *more_configs), rules, file, writer)
    updates.applied = lambda values, host: _applied(services, port, values, host)
    return updates


def _applied(services: Services, port: int, values: dict[str, Any], host: AdvertisedHost | None) -> None:
    services.config_version.counter += 1
    services.config_version.timestamp = services.clock.message_time_ms()
    if not ADDRESS_KEYS.isdisjoint(values):
        _advertise(services, host, services.config.advertised_port or port)
    if "brokerPermission" in values:
        services.topics.next_version()
        services.registration.register()


def _advertise(services: Services, host: AdvertisedHost | None, port: int) -> None:
    """Advertise another address: in routes at once, and in the ids of messages stored from now on."""
    name = services.broker_address.rpartition(":")[0] if host is None else host.name
    packed = services.store_host[:-4] if host is None else pack_host(host.address, port)[:-4]
    services.broker_address = f"{name}:{port}"
    services.store_host = packed + port.to_bytes(4, "big")
    services.putter.message_id = message_id_template(services.store_host)
    services.registration.move(services.broker_address)
    if services.members is not None:
        services.members.move(services.broker_address)
