"""Requests that a slave refuses: its log, topics and groups are copies of its master's.

The codes are those of 4.9.4's slave, or of 5.x's for requests that 4.9.4 does not know. Differences: a slave here refuses
sends before it looks at the topic, so it creates none; DELETE_TOPIC_IN_BROKER succeeds without effect, because 4.9.4's
`deleteTopic`, which sends it to slaves too, stops at an error before its requests to the name servers.
"""

import logging
from typing import Any, Final, NoReturn

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Handler, RemotingError, Route
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")

PUT_REFUSAL: Final = "this broker is a slave: only its master accepts messages"
_END_REMARK: Final = "Message store is slave mode, so end transaction is forbidden."
_TABLE_REMARK: Final = "Can't modify topic or subscription group from slave broker, please execute it from master broker."

_SENDS: Final = (
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.QUERY_DELAYED, RequestCode.COUNT_DELAYED, RequestCode.CANCEL_DELAYED, RequestCode.DELIVER_DELAYED_NOW,
)  # fmt: skip
_TABLE_CHANGES: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.CLONE_GROUP_OFFSET,
)  # fmt: skip
REFUSED: Final[dict[int, tuple[ResponseCode, str]]] = {
    **dict.fromkeys(_SENDS, (ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. ({PUT_REFUSAL})")),
    **dict.fromkeys(_TABLE_CHANGES, (ResponseCode.SYSTEM_ERROR, _TABLE_REMARK)),
    # Clients of 4.9.4 then send the message themselves, to the retry topic at the master.
    RequestCode.CONSUMER_SEND_MSG_BACK: (ResponseCode.SYSTEM_ERROR, f"SERVICE_NOT_AVAILABLE ({PUT_REFUSAL})"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (ResponseCode.SYSTEM_ERROR, PUT_REFUSAL),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, _END_REMARK),
    RequestCode.RECALL_MESSAGE: (ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker"),
}
"""Request code -> response code and remark."""


def routes_of_slave(table: dict[int, Route]) -> dict[int, Route]:
    """Return the routes with refusals in place of the handlers that a slave does not have."""
    refusals = RefusalLog(log)
    changed = {code: table[code]._replace(handler=_refusing(refusals, code, *answer)) for code, answer in REFUSED.items()}
    changed[RequestCode.DELETE_TOPIC_IN_BROKER] = table[RequestCode.DELETE_TOPIC_IN_BROKER]._replace(handler=_ignored)
    return table | changed


def _refusing(refusals: RefusalLog, code: int, response_code: ResponseCode, remark: str) -> Handler:
    def refuse(services: Any, request: Request[Any]) -> NoReturn:
        peer = request.channel.remote_address
        refusals.refused(code, f"refused request code {code} from {peer}, and perhaps from others: {remark}")
        raise RemotingError(response_code, remark)

    return refuse


def _ignored(services: Any, request: Request[Any]) -> Response:
    """Leave the topic to the master, whose tables replace this broker's."""
    return Response(remark="a slave deletes no topics itself: it copies the topics of its master")
