"""Replication figures for tools: the answer to 5.x's GET_BROKER_HA_STATUS, and keys of GET_BROKER_RUNTIME_INFO."""

from collections.abc import Mapping
from typing import Any

from pocketmq.broker.services import Services

_NO_CLIENT = {
    "activated": False, "lastReadTimestamp": 0, "lastWriteTimestamp": 0, "masterFlushOffset": 0, "maxOffset": 0,
    "transferredByteInSecond": 0,
}  # fmt: skip


def ha_runtime_info(services: Services) -> dict[str, Any]:
    """Return 5.x's HARuntimeInfo: at a master its slaves, at a slave its connection."""
    replicas = [] if services.ha is None else services.ha.replicas()
    return {
        "haClientRuntimeInfo": _client_info(services),
        "haConnectionInfo": [
            {
                "addr": one.address, "slaveAckOffset": one.acknowledged_offset, "diff": one.lag_size, "inSync": one.is_near,
                "transferredByteInSecond": one.sent_per_s, "transferFromWhere": one.next_offset,
            }
            for one in replicas
        ],
        "inSyncSlaveNums": sum(one.is_near for one in replicas),
        "master": services.ha_client is None,
        "masterCommitLogMaxOffset": services.store.max_physical_offset if services.ha_client is None else 0,
    }  # fmt: skip


def _client_info(services: Services) -> dict[str, Any]:
    client, now_ms, now_s = services.ha_client, services.clock.message_time_ms(), services.clock.monotonic()
    if client is None:
        return _NO_CLIENT

    def timestamp(at_s: float) -> int:
        return now_ms - round((now_s - at_s) * 1000) if at_s else 0

    return {
        **({} if client.ha_address is None else {"masterAddr": client.ha_address}),
        "activated": client.is_connected,
        "lastReadTimestamp": timestamp(client.last_read_s),
        "lastWriteTimestamp": timestamp(client.last_write_s),
        "masterFlushOffset": 0,  # masters of 4.9.4 do not send it
        "maxOffset": client.follower.max_offset,
        "transferredByteInSecond": client.received_per_s,
    }


def ha_lines(services: Services) -> Mapping[str, str]:
    """Return PocketMQ's own keys: at a master, how far each slave lags; at a slave, its connection. Apache has none."""
    if (client := services.ha_client) is not None:
        silent_ms = round((services.clock.monotonic() - client.last_read_s) * 1000) if client.last_read_s else -1
        return {
            "haMasterAddress": client.ha_address or "",
            "haMasterConnected": "true" if client.is_connected else "false",
            "haMasterSilentMs": str(silent_ms),
        }
    lines = {}
    for one in () if services.ha is None else services.ha.replicas():
        lines[f"haSlaveLagBytes_{one.address}"] = str(one.lag_size)
        lines[f"haSlaveLagMs_{one.address}"] = str(one.lag_ms)
    return lines
