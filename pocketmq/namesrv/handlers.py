"""Request handlers of the name server; the table by request code is at the end."""

import json
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager, KVLimitError
from pocketmq.namesrv.live_broker import BrokerIdentity, host_of
from pocketmq.namesrv.register_body import RegisterBodyError, decode_register_body
from pocketmq.namesrv.register_limits import RegistrationRefused
from pocketmq.namesrv.route_info import BROKER_EXPIRED_S, FLAG_UNIT, FLAG_UNIT_SUB, RouteInfoManager
from pocketmq.remoting import fastjson
from pocketmq.remoting.after_write import when_updated, when_written
from pocketmq.remoting.bodies import BrokerData, DataVersion, KVTable, TopicList, TopicRouteData, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, request_body, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.route import (
    AddWritePermResponseHeader,
    BrokerHeartbeatRequestHeader,
    BrokerIdentityRequestHeader,
    BrokerMemberGroupRequestHeader,
    BrokerNameRequestHeader,
    GetKVConfigResponseHeader,
    KVConfigKeyRequestHeader,
    KVNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    WipeWritePermResponseHeader,
)
from pocketmq.remoting.headers.topic import (
    DeleteTopicInNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from pocketmq.runtime import config as runtime_config
from pocketmq.runtime.config_updates import ConfigUpdates

STRICT_JSON_VERSION: Final = 401
"""Clients from 4.9.4 on read strict JSON routes; older Go clients read only fastjson's unquoted numeric keys."""

HEARTBEAT_TIMEOUT_MAX_S: Final = 86_400.0
"""Maximum heartbeat timeout that a broker may request."""

FAQ: Final = "See http://rocketmq.apache.org/docs/faq/ for further details."


class NamesrvServices(NamedTuple):
    """Dependencies available to request handlers."""

    config: NamesrvConfig
    routes: RouteInfoManager
    kv_config: KVConfigManager
    config_updates: ConfigUpdates
    """The changes of `config` by requests."""


# Brokers


def register_broker(services: NamesrvServices, request: Request[RegisterBrokerRequestHeader]) -> Response:
    header, channel = request.header, request.channel
    if header.body_crc32 and zlib.crc32(request.body) & 0x7FFFFFFF != header.body_crc32:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        topics_max = services.config.register_topics_max
        body = decode_register_body(request.body, request.version, header.compressed, topics_max)
    except RegisterBodyError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from None
    timeout_ms = header.heartbeat_timeout_millis
    try:
        ha_server_addr, master_addr = services.routes.register(
            _identity(header),
            header.ha_server_addr,
            body.topic_config_serialize_wrapper,
            body.filter_server_list,
            channel,
            BROKER_EXPIRED_S if timeout_ms is None else min(timeout_ms / 1000, HEARTBEAT_TIMEOUT_MAX_S),
            header.enable_acting_master,
        )
    except RegistrationRefused as error:
        raise _refused(services, channel, error) from None
    if "namesrv.is_broker" not in channel.attachments:
        channel.attachments["namesrv.is_broker"] = True
        channel.on_close(services.routes.channel_closed)
    order_conf = services.kv_config.namespace(ORDER_TOPIC_CONFIG)
    answer = b"" if order_conf is None else encode_body(KVTable(order_conf))
    return Response(header=RegisterBrokerResponseHeader(ha_server_addr, master_addr), body=answer)


def unregister_broker(services: NamesrvServices, request: Request[BrokerIdentityRequestHeader]) -> Response:
    try:
        services.routes.unregister_by(_identity(request.header), request.channel)
    except RegistrationRefused as error:
        raise _refused(services, request.channel, error) from None
    return Response()


def _identity(header: RegisterBrokerRequestHeader | BrokerIdentityRequestHeader) -> BrokerIdentity:
    return BrokerIdentity(header.cluster_name, header.broker_name, header.broker_addr, header.broker_id)


def _refused(services: NamesrvServices, channel: Any, error: RegistrationRefused) -> RemotingError:
    """Return the answer to a refused broker, and log the refusal at once and then once a minute."""
    services.routes.refusals.refused((host_of(channel), error.key), f"refused a broker at {host_of(channel)}: {error}")
    return RemotingError(error.code, str(error))


def query_data_version(services: NamesrvServices, request: Request[BrokerIdentityRequestHeader]) -> Response:
    """Answer whether the broker's DataVersion is new. The request also counts as a heartbeat, as in 5.x."""
    address = request.header.broker_addr
    asked = request_body(request, DataVersion)
    is_changed = services.routes.is_changed(address, asked)
    services.routes.touch(address)
    known = services.routes.data_version(address)
    return Response(header=QueryDataVersionResponseHeader(is_changed), body=b"" if known is None else encode_body(known))


def broker_heartbeat(services: NamesrvServices, request: Request[BrokerHeartbeatRequestHeader]) -> Response:
    """Record that a broker is alive; the answer is success also for an unknown one, as in Apache."""
    services.routes.touch(request.header.broker_addr)
    return Response()


def get_broker_member_group(services: NamesrvServices, request: Request[BrokerMemberGroupRequestHeader]) -> Response:
    """Return the living brokers of a broker name by their real ids, without an acting master."""
    cluster, name = request.header.cluster_name, request.header.broker_name
    ids = services.routes.broker_addresses(name)
    group = {"brokerAddrs": _loose_ids(ids), "brokerName": name, "cluster": cluster}
    return Response(body=fastjson.dumps({"brokerMemberGroup": group}))


def wipe_write_perm(services: NamesrvServices, request: Request[BrokerNameRequestHeader]) -> Response:
    return Response(header=WipeWritePermResponseHeader(services.routes.wipe_write_perm(request.header.broker_name)))


def add_write_perm(services: NamesrvServices, request: Request[BrokerNameRequestHeader]) -> Response:
    return Response(header=AddWritePermResponseHeader(services.routes.add_write_perm(request.header.broker_name)))


# Routes and lists


def get_route_info(services: NamesrvServices, request: Request[GetRouteInfoRequestHeader]) -> Response:
    topic = request.header.topic
    route = services.routes.route(topic)
    if route is None:
        raise RemotingError(
            ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}\n{FAQ}"
        )
    if services.config.order_message_enable:
        route.order_topic_conf = services.kv_config.get(ORDER_TOPIC_CONFIG, topic)
    _tell_of_acting_masters(request, route.broker_datas)
    is_strict = request.version >= STRICT_JSON_VERSION or request.header.accept_standard_json_only
    return Response(body=_strict_route(route) if is_strict else _loose_route(route))


def _tell_of_acting_masters(request: Request[Any], brokers: Iterable[BrokerData]) -> None:
    """Remove enableActingMaster for clients up to 4.9.4, which then get the same fields as from Apache 4.9.4."""
    if request.version <= STRICT_JSON_VERSION:
        for broker in brokers:
            broker.enable_acting_master = None


def _strict_route(route: TopicRouteData) -> bytes:
    """Encode a route as standard ASCII JSON with sorted keys."""
    return json.dumps(msgspec.json.decode(encode_body(route)), sort_keys=True, separators=(",", ":")).encode()


def _loose_route(route: TopicRouteData) -> bytes:
    """Encode a route as fastjson does, with unquoted broker ids."""
    fields = msgspec.to_builtins(route)
    fields["brokerDatas"] = [_loose_broker(broker) for broker in route.broker_datas]
    return encode_body(fields)


def _loose_ids(address_by_id: dict[str, str]) -> msgspec.Raw:
    return fastjson.object_map((broker_id.encode(), address) for broker_id, address in address_by_id.items())


def _loose_broker(broker: BrokerData) -> dict[str, Any]:
    ids = _loose_ids(broker.broker_addrs)
    fields: dict[str, Any] = {"brokerAddrs": ids, "brokerName": broker.broker_name, "cluster": broker.cluster}
    if broker.enable_acting_master is not None:
        fields["enableActingMaster"] = broker.enable_acting_master
    return fields


def get_broker_cluster_info(services: NamesrvServices, request: Request[NoHeader]) -> Response:
    brokers = services.routes.brokers()
    _tell_of_acting_masters(request, brokers.values())
    table = {name: _loose_broker(broker) for name, broker in brokers.items()}
    return Response(body=fastjson.dumps({"brokerAddrTable": table, "clusterAddrTable": services.routes.clusters()}))


def get_all_topic_list(services: NamesrvServices, request: Request[NoHeader]) -> Response:
    return Response(body=encode_body(TopicList(services.routes.topics())))


def get_topics_by_cluster(services: NamesrvServices, request: Request[GetTopicsByClusterRequestHeader]) -> Response:
    return Response(body=encode_body(TopicList(services.routes.topics_of_cluster(request.header.cluster))))


def get_system_topic_list(services: NamesrvServices, request: Request[NoHeader]) -> Response:
    """Return the names of clusters and brokers, which are topics too, and a broker to ask for the other system topics."""
    names = [name for cluster, brokers in services.routes.clusters().items() for name in (cluster, *brokers)]
    addresses = (address for broker in services.routes.brokers().values() for address in broker.broker_addrs.values())
    return Response(body=encode_body(TopicList(names, next(addresses, None))))


def _topic_list_by_flag(mask: int, wanted: int) -> Callable[[NamesrvServices, Request[NoHeader]], Response]:
    def answer(services: NamesrvServices, request: Request[NoHeader]) -> Response:
        return Response(body=encode_body(TopicList(services.routes.topics_by_flag(mask, wanted))))

    return answer


def delete_topic(services: NamesrvServices, request: Request[DeleteTopicInNamesrvRequestHeader]) -> Response:
    services.routes.delete_topic(request.header.topic, request.header.cluster_name or None)
    return Response()


# Key-value config


def put_kv_config(services: NamesrvServices, request: Request[PutKVConfigRequestHeader]) -> Response | Deferred:
    """Set a value; answered once it is on disk."""
    header = request.header
    try:
        services.kv_config.put(header.namespace, header.key, header.value)
    except KVLimitError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return when_written(Response(), services.kv_config.unwritten(header.namespace, header.key))


def get_kv_config(services: NamesrvServices, request: Request[KVConfigKeyRequestHeader]) -> Response:
    namespace, key = request.header.namespace, request.header.key
    value = services.kv_config.get(namespace, key)
    if value is None:
        raise RemotingError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
    return Response(header=GetKVConfigResponseHeader(value))


def delete_kv_config(services: NamesrvServices, request: Request[KVConfigKeyRequestHeader]) -> Response | Deferred:
    """Delete a key; answered once that is on disk."""
    namespace, key = request.header.namespace, request.header.key
    services.kv_config.delete(namespace, key)
    return when_written(Response(), services.kv_config.unwritten(namespace, key))


def get_kv_list(services: NamesrvServices, request: Request[KVNamespaceRequestHeader]) -> Response:
    table = services.kv_config.namespace(request.header.namespace)
    if table is None:
        raise RemotingError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.header.namespace}")
    return Response(body=encode_body(KVTable(table)))


# The name server's own config


def update_namesrv_config(services: NamesrvServices, request: Request[NoHeader]) -> Response | Deferred:
    """Change config keys. An unknown or forbidden key refuses the whole update; Apache ignores it and answers success."""
    return when_updated(services.config_updates, request, ResponseCode.NO_PERMISSION)


def get_namesrv_config(services: NamesrvServices, request: Request[NoHeader]) -> Response:
    return Response(body=runtime_config.print_items(services.config_updates.configs).encode())


_OF_BROKERS: Final = routes(
    Route(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, register_broker),
    Route(RequestCode.UNREGISTER_BROKER, BrokerIdentityRequestHeader, unregister_broker),
    Route(RequestCode.QUERY_DATA_VERSION, BrokerIdentityRequestHeader, query_data_version),
    Route(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader, broker_heartbeat),
)
_OF_CLIENTS: Final = routes(
    Route(RequestCode.GET_KV_CONFIG, KVConfigKeyRequestHeader, get_kv_config),
    Route(RequestCode.GET_KVLIST_BY_NAMESPACE, KVNamespaceRequestHeader, get_kv_list),
    Route(RequestCode.GET_BROKER_MEMBER_GROUP, BrokerMemberGroupRequestHeader, get_broker_member_group),
    Route(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader, get_route_info),
    Route(RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader, get_broker_cluster_info),
    Route(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoHeader, get_all_topic_list),
    Route(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader, get_topics_by_cluster),
    Route(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, NoHeader, get_system_topic_list),
    Route(RequestCode.GET_UNIT_TOPIC_LIST, NoHeader, _topic_list_by_flag(FLAG_UNIT, FLAG_UNIT)),
    Route(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, NoHeader, _topic_list_by_flag(FLAG_UNIT_SUB, FLAG_UNIT_SUB)),
    Route(
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        NoHeader,
        _topic_list_by_flag(FLAG_UNIT | FLAG_UNIT_SUB, FLAG_UNIT_SUB),
    ),
)
"""Open to all."""
_OF_TOOLS: Final = routes(
    Route(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader, put_kv_config),
    Route(RequestCode.DELETE_KV_CONFIG, KVConfigKeyRequestHeader, delete_kv_config),
    Route(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader, wipe_write_perm),
    Route(RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader, add_write_perm),
    Route(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvRequestHeader, delete_topic),
    Route(RequestCode.UPDATE_NAMESRV_CONFIG, NoHeader, update_namesrv_config),
    Route(RequestCode.GET_NAMESRV_CONFIG, NoHeader, get_namesrv_config),
)
ROUTES: Final = _OF_BROKERS | _OF_CLIENTS | _OF_TOOLS
REGISTER_CODES: Final = frozenset(_OF_BROKERS)
"""Codes restricted by `registerAllow`."""
OPEN_CODES: Final = frozenset(_OF_CLIENTS)
ADMIN_CODES: Final = frozenset(_OF_TOOLS)
"""Codes restricted by `adminAllow`."""
