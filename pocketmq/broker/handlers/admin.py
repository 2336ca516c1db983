"""Requests about the broker itself: its config, state, statistics and files."""

import logging
from typing import Final

from pocketmq.broker.config import FIXED_KEYS, UPDATABLE_KEYS
from pocketmq.broker.figures.ha_figures import ha_runtime_info
from pocketmq.broker.figures.runtime_info import runtime_info
from pocketmq.broker.figures.timer_figures import timer_checkpoint, timer_metrics
from pocketmq.broker.services import Services
from pocketmq.broker.stats.counts import ROWS
from pocketmq.remoting import fastjson
from pocketmq.remoting.after_write import when_updated
from pocketmq.remoting.bodies import KVTable, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.consumer import BrokerStatsRequestHeader
from pocketmq.remoting.headers.query import QueryConsumeQueueRequestHeader
from pocketmq.remoting.headers.route import ConfigVersionResponseHeader, GetBrokerConfigRequestHeader
from pocketmq.runtime import properties_file
from pocketmq.runtime.config import to_properties
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT
from pocketmq.store.format.record import store_timestamp_of

log = logging.getLogger("broker")

QUEUE_UNITS_MAX = 1000
"""Maximum units in one answer to QUERY_CONSUME_QUEUE."""
_FALL_SIZE: Final = "GROUP_GET_FALL_SIZE"
_FALL_TIME: Final = "GROUP_GET_FALL_TIME"


def update_broker_config(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Change config keys, all or none, checked as at start and kept over a restart."""
    return when_updated(services.config_updates, request, ResponseCode.SYSTEM_ERROR)


def get_broker_config(services: Services, request: Request[GetBrokerConfigRequestHeader]) -> Response:
    """Return every key with its value, including keys that support one value only."""
    properties = {key: value for key, (value, _) in FIXED_KEYS.items()}
    properties |= to_properties(services.config_updates.configs)
    # Values that were determined at start because the config leaves them empty.
    host, _, port = services.broker_address.rpartition(":")
    found = {"brokerIP1": host, "brokerIP2": host, "advertisedPort": port}
    found["storePathCommitLog"] = services.store.config.commit_log_directory
    properties |= {key: value for key, value in found.items() if not properties[key]}
    version = encode_body(services.config_version).decode()
    updatable = " ".join(sorted(UPDATABLE_KEYS)) if request.header.with_updatable_keys else None
    return Response(0, ConfigVersionResponseHeader(version, updatable), properties_file.dumps(properties).encode())


def get_broker_runtime_info(services: Services, request: Request[NoHeader]) -> Response:
    """Return the table used by clusterList and brokerStatus."""
    return Response(body=encode_body(KVTable(runtime_info(services))))


def get_broker_ha_status(services: Services, request: Request[NoHeader]) -> Response:
    """Return the state of replication for 5.x's haStatus."""
    return Response(body=encode_body(ha_runtime_info(services)))


def view_broker_stats_data(services: Services, request: Request[BrokerStatsRequestHeader]) -> Response:
    """Return one statistic over a minute, an hour and a day. Tools ask for many that do not exist."""
    name, key = request.header.stats_name, request.header.stats_key
    item = services.stats.samples.item(name, key)
    found = _lag_figures(services, name, key) if item is None else item.snapshot()
    if found is None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    return Response(body=fastjson.dumps(found))


def _lag_figures(services: Services, name: str, key: str) -> dict[str, dict[str, float]] | None:
    """Return the body for GROUP_GET_FALL_SIZE and GROUP_GET_FALL_TIME: how far a group's pulls of a queue lie behind the end
    of the log. Their key is `queueId@topic@group`. Apache's broker keeps both as momentary statistics, which it only prints.

    `sum` is the present value: bytes of the log behind the last pulled record, or ms since it was stored. None: the group
    has pulled nothing from the queue since the start.
    """
    if name not in (_FALL_SIZE, _FALL_TIME):
        return None
    queue_id, _, rest = key.partition("@")
    topic, _, group = rest.partition("@")
    if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) < 10):
        return None
    store = services.store
    pulled_to = services.offsets.pull_offsets.get((group, topic, int(queue_id)))
    unit = None if pulled_to is None else store.unit_at(topic, int(queue_id), pulled_to - 1)
    if unit is None:
        return None
    physical_offset, size, _ = unit
    if name == _FALL_SIZE:
        figure = store.max_physical_offset - physical_offset - size
    else:
        record = store.message_at(physical_offset)
        if record is None:
            return None
        figure = services.clock.message_time_ms() - store_timestamp_of(record)
    return {row: {"sum": max(figure, 0), "tps": 0.0, "avgpt": 0.0} for row, _, _ in ROWS}


def get_all_delay_offset(services: Services, request: Request[NoHeader]) -> Response:
    """Return the offsets of the delay levels for a slave; levels are unquoted keys, as Apache writes them."""
    rows = ((b"%d" % level, next_offset) for level, next_offset in services.schedule.encode()["offsetTable"].items())
    version = services.version_for(RequestCode.GET_ALL_DELAY_OFFSET, request.version)
    document = {"offsetTable": fastjson.object_map(rows)}
    return Response(body=fastjson.dumps(document if version is None else document | {"dataVersion": version}))


def get_timer_check_point(services: Services, request: Request[NoHeader]) -> Response:
    """Return the 56 bytes of `config/timercheck` for a slave of 5.x."""
    return Response(body=timer_checkpoint(services))


def get_timer_metrics(services: Services, request: Request[NoHeader]) -> Response:
    """Return the number of waiting timer messages by topic for a slave of 5.x."""
    return Response(body=encode_body(timer_metrics(services)))


def query_consume_queue(services: Services, request: Request[QueryConsumeQueueRequestHeader]) -> Response:
    """Return units of a queue as stored on disk."""
    header = request.header
    queue = services.store.queue(header.topic, header.queue_id)
    if queue is None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
    body: dict[str, object] = {"maxQueueIndex": queue.max_offset, "minQueueIndex": queue.min_offset}
    if not queue.min_offset <= header.index < queue.max_offset:
        # As Apache: code 0 without a body. The remark has the valid range.
        remark = f"Index {header.index} of {header.queue_id}@{header.topic} is not in {queue.min_offset}..{queue.max_offset}"
        return Response(remark=remark)
    if header.consumer_group:
        data = services.filters.get(header.topic, header.consumer_group)
        body["filterData"] = "null" if data is None else str(fastjson.dumps(data.document()), "utf-8")
        subscription = services.clients.find_subscription(header.consumer_group, header.topic)
        if subscription is not None:
            body["subscriptionData"] = subscription
    count = min(max(header.count, 0), QUEUE_UNITS_MAX)
    body["queueData"] = [
        {"eval": False, "physicOffset": physical_offset, "physicSize": size, "tagsCode": tags_code}
        for physical_offset, size, tags_code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(queue.units(header.index, count))
    ]
    return Response(body=encode_body(body))


def clean_expired_consume_queue(services: Services, request: Request[NoHeader]) -> Response:
    """Delete queue files whose records are no longer in the log."""
    services.store.clean()
    return Response()


def delete_expired_commit_log(services: Services, request: Request[NoHeader]) -> Response:
    """Delete expired log files now, regardless of deleteWhen."""
    services.store.clean(manual=True)
    return Response()


ROUTES = routes(
    Route(RequestCode.UPDATE_BROKER_CONFIG, NoHeader, update_broker_config),
    Route(RequestCode.GET_BROKER_CONFIG, GetBrokerConfigRequestHeader, get_broker_config),
    Route(RequestCode.GET_BROKER_RUNTIME_INFO, NoHeader, get_broker_runtime_info),
    Route(RequestCode.GET_BROKER_HA_STATUS, NoHeader, get_broker_ha_status),
    Route(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsRequestHeader, view_broker_stats_data),
    Route(RequestCode.GET_ALL_DELAY_OFFSET, NoHeader, get_all_delay_offset),
    Route(RequestCode.GET_TIMER_CHECK_POINT, NoHeader, get_timer_check_point),
    Route(RequestCode.GET_TIMER_METRICS, NoHeader, get_timer_metrics),
    Route(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader, query_consume_queue),
    Route(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, NoHeader, clean_expired_consume_queue),
    Route(RequestCode.DELETE_EXPIRED_COMMITLOG, NoHeader, delete_expired_commit_log),
)
