"""Checks and filters shared by pulls and pops: permissions of broker, group and topic, and the wanted messages."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

from pocketmq.broker.filter.expression_filter import expression_filter
from pocketmq.broker.filter.subscription import Wanted, is_tag_type, refusal, tag_filter
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_READ
from pocketmq.remoting.after_write import Work, answer_in_slices
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.store.queue.record_filter import NotCompiled

H = TypeVar("H", bound=CommandHeader)
Handle = Callable[[Services, Request[H]], Response | Deferred]


def compiling(handle: Handle[H]) -> Handle[H]:
    """Return a handler that compiles in slices the expression that a request needs, before `handle` serves it."""

    def handler(services: Services, request: Request[H]) -> Response | Deferred:
        try:
            return handle(services, request)
        except NotCompiled as missing:
            return answer_in_slices(services.slices, request, _compiled_first(services, request, handle, missing.text))

    return handler


def _compiled_first(services: Services, request: Request[H], handle: Handle[H], text: str) -> Work:
    from pocketmq.broker.filter.compiled_expressions import compilation

    while True:
        for _ in compilation(text):
            yield
            if not request.channel.is_open:
                return None
        try:
            return handle(services, request)
        except NotCompiled as another:  # a retry topic needs the expressions of several topics
            text = another.text


def forbid(remark: str) -> NoReturn:
    """Raise RemotingError NO_PERMISSION."""
    raise RemotingError(ResponseCode.NO_PERMISSION, remark)


def check_broker(services: Services, verb: str) -> None:
    """Raises RemotingError when brokerPermission forbids reading."""
    if not services.config.broker_permission & PERM_READ:
        forbid(f"the broker[{services.broker_address}] {verb} message is forbidden")


def check_group(services: Services, group: str) -> SubscriptionGroupConfig:
    """Return the config of a group that may consume, created if autoCreateSubscriptionGroup is on. Raises RemotingError."""
    group_config = services.groups.get(group) or services.groups.find(group)
    if group_config is None:
        remark = f"subscription group [{group}] does not exist (autoCreateSubscriptionGroup=false)"
        raise RemotingError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group_config.consume_enable:
        forbid(f"subscription group no permission, {group}")
    return group_config


def check_topic(services: Services, topic: str, verb: str) -> TopicConfig:
    """Return the config of a topic that may be read. Raises RemotingError."""
    topic_config = services.topics.get(topic) or find_topic(services, topic)
    if not topic_config.perm & PERM_READ:
        forbid(f"the topic[{topic}] {verb} message is forbidden")
    return topic_config


def find_topic(services: Services, topic: str) -> TopicConfig:
    """Return the config of a topic. Raises RemotingError when it does not exist."""
    topic_config = services.topics.get(topic)
    if topic_config is None:
        raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
    return topic_config


def no_queue(topic: str, queue_id: int, topic_config: TopicConfig) -> str:
    """Return the remark for a queue that the topic does not have."""
    return f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{topic_config.read_queue_nums}]"


def wanted(services: Services, expression_type: str | None, expression: str | None) -> Wanted:
    """Return the filter of a request's own subscription. Raises RemotingError and NotCompiled."""
    try:
        if is_tag_type(expression_type):
            return tag_filter(expression)
        if not services.config.enable_property_filter:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, refusal(expression_type))
        return expression_filter(expression_type, expression, services.config.max_filter_expression_length)
    except ValueError as error:
        remark = f"parse the consumer's subscription failed: {error}"
        raise RemotingError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
