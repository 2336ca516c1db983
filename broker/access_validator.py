"""What a request must show before it is served: a white address, or a signature and the permissions of its code.

Guarded handlers take the place of the plain ones in the table of routes when `aclEnable` is set; without it nothing of this
is in a request's way. Codes that are not listed here need a signature and no permission, as in 4.9.4. We ask for more than
4.9.4 where it leaves a door open: batches (code 320), replies, pops and lite pulls, a retry topic's own group, recalls,
locks, and what names a message by its place in the log, by which whoever can sign might read all topics and end all
transactions; and codes that show or change secrets, delete for everybody, or change what is another group's, are an admin's.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from broker.access_rules import PUB, SUB, Account, Resources
from broker.delivery_time import TIMER_TOPIC
from broker.message_id import decode_message_id
from broker.pop_record import normal_topic_of
from broker.services import Services
from broker.topic_config import (
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
)
from remoting.bodies import HeartbeatData, LockBatchBody, decode_body
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Request, Response
from remoting.dispatch import Deferred, Handler, RemotingError, Route
from remoting.pop_bodies import BatchAckMessageRequestBody
from remoting.signature import ACCESS_KEY
from store.message import SCHEDULE_TOPIC
from store.properties import REAL_TOPIC, mark_of, text_of, value_of
from store.record import bounds, entries_of

if TYPE_CHECKING:
    from broker.plain_permission import PlainPermissionManager

log = logging.getLogger("broker")

ADMIN_CODES: Final = frozenset(
    {
        # Apache's:
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        # Secrets, and who has rights:
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        # Everybody's files, queues and messages:
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.QUERY_DELAYED,
        RequestCode.COUNT_DELAYED,
        RequestCode.CANCEL_DELAYED,
        RequestCode.DELIVER_DELAYED_NOW,
        RequestCode.ADVANCE_CLOCK,
    }
)

_PUT_ASIDE: Final = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC))
_REAL_TOPIC_MARK: Final = mark_of(REAL_TOPIC)

# --- what a code needs ----------------------------------------------------------------------------------------------


def _group(group: str | None) -> Resources:
    return () if group is None else ((RETRY_PREFIX + group, SUB),)


def _of_message(services: Services, physical_offset: int, needed: int, group: str = "") -> Resources:
    """The topic that the message is for, also while it stands in another. Where none is, the handler says so."""
    record = services.store.message_at(physical_offset)
    if record is None:
        return ()
    _, _, start, size = bounds(record, 0)
    topic = str(record[start : start + size], "utf-8", "replace")
    real = value_of(entries_of(record, 0), _REAL_TOPIC_MARK) if topic in _PUT_ASIDE else None
    return ((normal_topic_of(topic, group) if real is None else text_of(real), needed),)


def _of_message_id(services: Services, message_id: str | None, needed: int, group: str = "") -> Resources:
    try:
        _, physical_offset = decode_message_id(message_id or "")
    except ValueError:
        return ()
    return _of_message(services, physical_offset, needed, group)


def _send(services: Services, request: Request[Any]) -> Resources:
    header = request.header
    if header.topic.startswith(RETRY_PREFIX):
        return (*_group(header.producer_group), (header.topic, SUB))
    return ((header.topic, PUB),)


def _reply(services: Services, request: Request[Any]) -> Resources:
    """The topic of replies is everybody's; Apache looks at no other either, and stores there what it is given."""
    topic = request.header.topic
    return () if topic.endswith(REPLY_TOPIC_SUFFIX) else ((topic, PUB),)


def _send_back(services: Services, request: Request[Any]) -> Resources:
    group = request.header.group
    yield from _group(group)
    yield from _of_message(services, request.header.physical_offset, SUB, group)


def _of_consumer_group(services: Services, request: Request[Any]) -> Resources:
    return _group(request.header.consumer_group)


def _of_topic_and_consumer_group(services: Services, request: Request[Any]) -> Resources:
    return ((request.header.topic, SUB), *_group(request.header.consumer_group))


def _of_topic_and_group(services: Services, request: Request[Any]) -> Resources:
    return ((request.header.topic, SUB), *_group(request.header.group))


def _clone(services: Services, request: Request[Any]) -> Resources:
    header = request.header
    if header.topic:
        yield header.topic, SUB
    yield from _group(header.src_group)
    yield from _group(header.dest_group)


def _of_topic(services: Services, request: Request[Any]) -> Resources:
    return ((request.header.topic, SUB),)


def _recall(services: Services, request: Request[Any]) -> Resources:
    return ((request.header.topic, PUB),)


def _heart_beat(services: Services, request: Request[Any]) -> Resources:
    resources: list[tuple[str, int]] = []
    for consumer in decode_body(HeartbeatData, request.body).consumer_data_set:
        resources += _group(consumer.group_name)
        resources += [(subscription.topic, SUB) for subscription in consumer.subscription_data_set]
    return resources


def _of_popped(services: Services, request: Request[Any]) -> Resources:
    """What was popped may come from the group's retry topic of a topic, `%RETRY%group_topic`."""
    topic, group = request.header.topic, request.header.consumer_group
    return ((normal_topic_of(topic, group), SUB), *_group(group))


def _of_locks(services: Services, request: Request[Any]) -> Resources:
    return _group(decode_body(LockBatchBody, request.body).consumer_group)


def _batch_ack(services: Services, request: Request[Any]) -> Resources:
    acks = decode_body(BatchAckMessageRequestBody, request.body).acks
    return [resource for ack in acks for resource in ((ack.t, SUB), *_group(ack.c))]


def _view(services: Services, request: Request[Any]) -> Resources:
    return _of_message(services, request.header.physical_offset, SUB)


def _consume_directly(services: Services, request: Request[Any]) -> Resources:
    group = request.header.consumer_group
    yield from _group(group)
    yield from _of_message_id(services, request.header.msg_id, SUB, group)


def _end_transaction(services: Services, request: Request[Any]) -> Resources:
    return _of_message(services, request.header.commit_log_offset, PUB)


def _resume_check(services: Services, request: Request[Any]) -> Resources:
    return _of_message_id(services, request.header.msg_id, PUB)


ResourcesOf = Callable[[Services, Request[Any]], Resources]

RESOURCES: Final[dict[int, ResourcesOf]] = {
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send,
    RequestCode.SEND_BATCH_MESSAGE: _send,
    RequestCode.SEND_REPLY_MESSAGE: _reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: _reply,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    RequestCode.VIEW_MESSAGE_BY_ID: _view,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _resume_check,
    RequestCode.LOCK_BATCH_MQ: _of_locks,
    RequestCode.UNLOCK_BATCH_MQ: _of_locks,
    RequestCode.PULL_MESSAGE: _of_topic_and_consumer_group,
    RequestCode.LITE_PULL_MESSAGE: _of_topic_and_consumer_group,
    RequestCode.QUERY_MESSAGE: _of_topic,
    RequestCode.HEART_BEAT: _heart_beat,
    RequestCode.UNREGISTER_CLIENT: _of_consumer_group,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _of_consumer_group,
    RequestCode.UPDATE_CONSUMER_OFFSET: _of_topic_and_consumer_group,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _of_topic_and_group,
    RequestCode.CLONE_GROUP_OFFSET: _clone,
    RequestCode.RECALL_MESSAGE: _recall,
    RequestCode.POP_MESSAGE: _of_topic_and_consumer_group,
    RequestCode.PEEK_MESSAGE: _of_topic_and_consumer_group,
    RequestCode.NOTIFICATION: _of_topic_and_consumer_group,
    RequestCode.POLLING_INFO: _of_topic_and_consumer_group,
    RequestCode.ACK_MESSAGE: _of_popped,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _of_popped,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
}
"""Request code -> topics and groups that a request is about, and what must be allowed of them."""

# --- whether it shows it --------------------------------------------------------------------------------------------


def guard(table: dict[int, Route], manager: "PlainPermissionManager") -> dict[int, Route]:
    """The same routes behind a check by the rules in force."""
    validator = AccessValidator(manager)
    return {code: route._replace(handler=validator.guarded(route)) for code, route in table.items()}


class AccessValidator:
    """Checks requests by the rules of `manager`."""

    def __init__(self, manager: "PlainPermissionManager") -> None:
        self._manager = manager
        self._said = ("", "")

    def guarded(self, route: Route) -> Handler:
        """The route's handler, for requests that may pass."""
        handler, resources_of, needs_admin = route.handler, RESOURCES.get(route.code), route.code in ADMIN_CODES

        def serve(services: Services, request: Request[Any]) -> Response | Deferred | None:
            account = self._account(request, needs_admin)
            if account is not None and resources_of is not None:
                self._check(account, services, request, resources_of)
            return handler(services, request)

        return serve

    def _account(self, request: Request[Any], needs_admin: bool) -> Account | None:
        """Who asks; None for who comes from a white address. Raises RemotingError for who does not show who he is."""
        rules, host = self._manager.rules, request.channel.remote_host
        if rules.is_white(host):
            return None
        ext = request.ext()
        access_key = ext.get(ACCESS_KEY)
        if access_key is None:
            self._refuse(host, "No accessKey is configured")
        account = rules.accounts.get(access_key)
        if account is None:
            self._refuse(host, f"No acl config for {access_key}")
        if account.is_white(host):
            return None
        if not account.signer.is_signed(ext, request.body):
            self._refuse(host, f"Check signature failed for accessKey={access_key}")
        if needs_admin and not account.is_admin:
            self._refuse(host, f"Need admin permission for request code={request.code}, but accessKey={access_key} is not")
        return account

    def _check(self, account: Account, services: Services, request: Request[Any], resources_of: ResourcesOf) -> None:
        """Raises RemotingError for a topic or group that the account may not use so."""
        host = request.channel.remote_host
        try:
            # Traces: whoever can sign may send them.
            denied = account.denied(one for one in resources_of(services, request) if one != (TRACE_TOPIC, PUB))
        except ValueError as error:
            self._refuse(host, f"body of request code {request.code}: {error}")
        if denied is not None:
            is_group = denied.startswith(RETRY_PREFIX)
            name = denied.removeprefix(RETRY_PREFIX)
            self._refuse(host, f"No default permission for {'group' if is_group else 'topic'}:{name}")

    def _refuse(self, host: str, why: str) -> NoReturn:
        if self._said != (host, why):  # a client tries again and again
            self._said = (host, why)
            log.warning("refused a request from %s: %r", host, why)
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {why}")
