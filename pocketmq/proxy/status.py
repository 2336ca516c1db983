"""Status of an answer: a failure is an answer with a Status; gRPC's own codes are for the transport and for telemetry."""

import logging
from collections.abc import Sequence
from typing import Final

from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.peer_text import remark_of
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("proxy")

OK: Final = pb.Status(code=pb.OK, message="OK")
_ACL_PREFIX: Final = "org.apache.rocketmq.acl"
_CODES: Final[dict[int, pb.Code]] = {
    ResponseCode.SUCCESS: pb.OK,
    ResponseCode.SYSTEM_BUSY: pb.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: pb.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: pb.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
    ResponseCode.MESSAGE_ILLEGAL: pb.BAD_REQUEST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: pb.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.NO_PERMISSION: pb.FORBIDDEN,
    ResponseCode.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
    ResponseCode.NO_MESSAGE: pb.INVALID_RECEIPT_HANDLE,
}
"""Remoting code -> code of the status; all others are INTERNAL_SERVER_ERROR."""


class Refusal(Exception):
    """A call is refused, with a code and a message for the client."""

    def __init__(self, code: pb.Code, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Statuses:
    """Makes the status of failures, and logs those that are refusals."""

    def __init__(self) -> None:
        self._refusals = RefusalLog(log)

    def of(self, failure: Exception, address: tuple[str, int]) -> pb.Status:
        """Return the status of a failed call from an address."""
        code, message = code_of(failure)
        peer = "{}:{}".format(*address)
        if code == pb.INTERNAL_ERROR:
            log.error("a call of %s failed", peer, exc_info=failure)
        elif isinstance(failure, ChannelClosed):
            log.info("a call of %s ended: %s", peer, message)
        else:
            self._refusals.refused((address[0], code), f"refused a call of {peer}: {remark_of(message)!r}")
        return pb.Status(code=code, message=remark_of(message))


def code_of(failure: Exception) -> tuple[pb.Code, str]:
    """Return the code and the message of a failure."""
    if isinstance(failure, Refusal):
        return failure.code, failure.message
    if isinstance(failure, RemotingError):
        return remoting_code(failure.code, failure.remark), failure.remark
    if isinstance(failure, TimeoutError):
        return pb.PROXY_TIMEOUT, str(failure) or "a broker did not answer in time"
    if isinstance(failure, (ChannelClosed, OSError)):
        return pb.INTERNAL_SERVER_ERROR, str(failure)
    return pb.INTERNAL_ERROR, "the call failed because of an error in the proxy"


def status_of(failure: Exception) -> pb.Status:
    """Return the status of one of several parts of a call, which failed."""
    code, message = code_of(failure)
    return pb.Status(code=code, message=remark_of(message))


def joint_status(parts: Sequence[pb.Status]) -> pb.Status:
    """Return the status of a call with the status of each of its parts."""
    if len({part.code for part in parts}) > 1:
        return pb.Status(code=pb.MULTIPLE_RESULTS, message="mixed results")
    return parts[0] if parts else OK


def remoting_code(code: int, remark: str = "") -> pb.Code:
    """Return the status code for a remoting code; both kinds of access control mean UNAUTHORIZED."""
    if code == ResponseCode.SYSTEM_ERROR and remark.startswith(_ACL_PREFIX):
        return pb.UNAUTHORIZED
    if code == ResponseCode.NO_PERMISSION and ("User:" in remark or "AccessKey" in remark):
        return pb.UNAUTHORIZED
    return _CODES.get(code, pb.INTERNAL_SERVER_ERROR)
