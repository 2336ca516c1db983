"""Whether a broker is ready: a master if a send would succeed, a slave if it copies its master's log."""

from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_WRITE


def problems(services: Services) -> list[str]:
    """Return the reasons why the broker is not ready."""
    found = []
    name = services.config.broker_name
    if not services.is_master:
        client = services.ha_client
        if client is None or not client.status().is_connected:
            found.append(f"broker {name}: it is not connected to its master")
    else:
        if (refusal := services.store.commit_log.refusal) is not None:
            found.append(f"broker {name}: {refusal}")
        if not services.config.broker_permission & PERM_WRITE:
            found.append(f"broker {name}: brokerPermission={services.config.broker_permission} forbids sends")
        if services.clock.message_time_ms() < services.config.start_accept_send_request_time_stamp:
            begin_ms = services.config.start_accept_send_request_time_stamp
            found.append(f"broker {name}: sends are refused until startAcceptSendRequestTimeStamp={begin_ms}")
    name_servers = services.registration.name_servers()
    if name_servers and not any(name_servers.values()):
        found.append(f"broker {name}: it is registered with none of its name servers ({', '.join(name_servers)})")
    return found
