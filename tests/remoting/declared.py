"""List of all header classes declared in remoting/headers, and the declaration of the binary header."""

import importlib
import pkgutil

from construct import GreedyRange, Int16ub, Int32ub, PascalString, Prefixed, Struct

from pocketmq.remoting import headers
from pocketmq.remoting.codes import RequestCode as Code
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers import consumer, offset, pull, query, route, send, topic
from pocketmq.remoting.layout import BinaryFixed

BinaryEntry = Struct("key" / PascalString(Int16ub, "utf8"), "value" / PascalString(Int32ub, "utf8"))
BinaryHeader = Struct(
    "fixed" / BinaryFixed,
    "remark" / PascalString(Int32ub, "utf8"),
    "ext" / Prefixed(Int32ub, GreedyRange(BinaryEntry)),
)


def header_classes() -> list[type[CommandHeader]]:
    found: list[type[CommandHeader]] = []
    for module_info in pkgutil.iter_modules(headers.__path__):
        module = importlib.import_module(f"pocketmq.remoting.headers.{module_info.name}")
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, CommandHeader) and value.__module__ == module.__name__
        ]
    return found


HEADERS = header_classes()
REQUEST_HEADERS = [header for header in HEADERS if "Request" in header.__name__]

HEADER_OF_CODE: dict[int, type[CommandHeader]] = {
    Code.SEND_MESSAGE: send.SendMessageRequestHeader,
    Code.SEND_MESSAGE_V2: send.SendMessageRequestHeaderV2,
    Code.SEND_BATCH_MESSAGE: send.SendMessageRequestHeaderV2,
    Code.CONSUMER_SEND_MSG_BACK: send.ConsumerSendMsgBackRequestHeader,
    Code.PULL_MESSAGE: pull.PullMessageRequestHeader,
    Code.QUERY_MESSAGE: query.QueryMessageRequestHeader,
    Code.VIEW_MESSAGE_BY_ID: query.ViewMessageRequestHeader,
    Code.QUERY_CONSUME_QUEUE: query.QueryConsumeQueueRequestHeader,
    Code.CONSUME_MESSAGE_DIRECTLY: query.ConsumeMessageDirectlyRequestHeader,
    Code.GET_CONSUMER_RUNNING_INFO: query.ConsumerRunningInfoRequestHeader,
    Code.QUERY_CONSUMER_OFFSET: offset.QueryConsumerOffsetRequestHeader,
    Code.UPDATE_CONSUMER_OFFSET: offset.UpdateConsumerOffsetRequestHeader,
    Code.GET_MAX_OFFSET: offset.QueueRequestHeader,
    Code.GET_MIN_OFFSET: offset.QueueRequestHeader,
    Code.GET_EARLIEST_MSG_STORETIME: offset.QueueRequestHeader,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: offset.SearchOffsetRequestHeader,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: offset.ResetOffsetRequestHeader,
    Code.UNREGISTER_CLIENT: consumer.UnregisterClientRequestHeader,
    Code.GET_CONSUMER_LIST_BY_GROUP: consumer.ConsumerGroupRequestHeader,
    Code.GET_CONSUMER_CONNECTION_LIST: consumer.ConsumerGroupRequestHeader,
    Code.NOTIFY_CONSUMER_IDS_CHANGED: consumer.ConsumerGroupRequestHeader,
    Code.GET_PRODUCER_CONNECTION_LIST: consumer.ProducerGroupRequestHeader,
    Code.DELETE_SUBSCRIPTIONGROUP: consumer.DeleteSubscriptionGroupRequestHeader,
    Code.GET_CONSUME_STATS: consumer.ConsumeStatsRequestHeader,
    Code.VIEW_BROKER_STATS_DATA: consumer.BrokerStatsRequestHeader,
    Code.UPDATE_AND_CREATE_TOPIC: topic.CreateTopicRequestHeader,
    Code.DELETE_TOPIC_IN_BROKER: topic.TopicRequestHeader,
    Code.GET_TOPIC_STATS_INFO: topic.TopicRequestHeader,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: topic.TopicRequestHeader,
    Code.DELETE_TOPIC_IN_NAMESRV: topic.DeleteTopicInNamesrvRequestHeader,
    Code.GET_ROUTEINFO_BY_TOPIC: topic.GetRouteInfoRequestHeader,
    Code.REGISTER_BROKER: route.RegisterBrokerRequestHeader,
    Code.WIPE_WRITE_PERM_OF_BROKER: route.BrokerNameRequestHeader,
    Code.ADD_WRITE_PERM_OF_BROKER: route.BrokerNameRequestHeader,
    Code.PUT_KV_CONFIG: route.PutKVConfigRequestHeader,
    Code.GET_KV_CONFIG: route.KVConfigKeyRequestHeader,
    Code.DELETE_KV_CONFIG: route.KVConfigKeyRequestHeader,
}
"""Request codes that occur in the recordings."""
