"""Transactions: a half message is sent first, and delivered only once it is committed.

    async with producer.transaction(Message("Orders", b"order 7")) as transaction:
        await database.insert(...)          an exception here rolls the message back

The broker asks a producer of the group about a half message that was neither committed nor rolled back: because the process
died, the end got lost, or by `leave_open()`. The producer's `check` callback answers it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from types import TracebackType
from typing import Final, Self

from pocketmq.client.message import MessageExt
from pocketmq.client.sending.message_sender import MessageSender
from pocketmq.client.sending.outgoing import Outgoing, SendResult
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.transaction import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from pocketmq.store.format.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_NOT_TYPE, TRANSACTION_ROLLBACK_TYPE

log = logging.getLogger("client")

TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
CHECKS_MAX: Final = 256
"""Maximum number of checks answered at the same time; the broker repeats those that are dropped."""
_END_ATTEMPTS: Final = 2


class TransactionState(IntEnum):
    """The state of a transaction, as its end says it. UNKNOWN: the broker asks (again) later."""

    UNKNOWN = TRANSACTION_NOT_TYPE
    COMMIT = TRANSACTION_COMMIT_TYPE
    ROLLBACK = TRANSACTION_ROLLBACK_TYPE


Check = Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]


class Transaction:
    """One half message, from `async with` on. It is committed at the end of the block, and rolled back at an exception."""

    def __init__(self, sender: MessageSender, half: Outgoing, timeout_s: float, sent: Callable[[SendResult], None]) -> None:
        """`sent` is called with the result of the half message."""
        self._sender, self._half, self._timeout_s, self._sent = sender, half, timeout_s, sent
        self._result: SendResult | None = None
        self.state: TransactionState | None = None
        """Commit, rollback or unknown; None before the transaction is ended."""
        self.is_confirmed = False
        """Whether the broker has carried out the commit or rollback. If not, it will ask `check`."""

    @property
    def result(self) -> SendResult:
        """Result of sending the half message."""
        if self._result is None:
            raise RuntimeError("the half message is not sent: use `async with`")
        return self._result

    async def __aenter__(self) -> Self:
        if self._result is not None:
            raise RuntimeError("a transaction can be used once: create another one")
        await self._sender.instance.introduce(self._half.topic)  # so that the broker can ask
        self._result = await self._sender.send(self._half, timeout_s=self._timeout_s)
        self._sent(self._result)
        if self._result.status != "SEND_OK":
            await self.rollback()
            remark = f"the half message was stored with {self._result.status}, and is rolled back"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state is None:
            await (self.commit() if kind is None else self.rollback())

    async def commit(self) -> None:
        """Deliver the message. If the broker does not confirm it, that is logged, and the broker will ask `check`."""
        await self._end(TransactionState.COMMIT)

    async def rollback(self) -> None:
        """Discard the message; otherwise as `commit`."""
        await self._end(TransactionState.ROLLBACK)

    def leave_open(self) -> None:
        """Decide later: the broker will ask `check`."""
        self._decide(TransactionState.UNKNOWN)

    def _decide(self, state: TransactionState) -> None:
        result = self.result
        if self.state is not None:
            raise RuntimeError(f"the transaction of {result.msg_id} is decided already: {self.state.name}")
        self.state = state

    async def _end(self, state: TransactionState) -> None:
        """Send END_TRANSACTION with an answer, which Apache's clients do not ask for, so that a lost one is noticed."""
        self._decide(state)
        result = self.result
        header = EndTransactionRequestHeader(
            producer_group=self._sender.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=int(result.offset_msg_id[-16:], 16),  # an offsetMsgId ends with it
            commit_or_rollback=state,
            msg_id=result.msg_id,
            transaction_id=result.msg_id,
            topic=self._half.topic,
        )
        for attempt in range(_END_ATTEMPTS):
            try:
                await self._sender.instance.call(
                    result.queue.broker_name, RequestCode.END_TRANSACTION, header, b"", self._timeout_s
                )
                self.is_confirmed = True
                return
            except (OSError, RemotingError) as failure:  # OSError: also TimeoutError
                log.warning("%s of transaction %s failed: %s", state.name, result.msg_id, failure or "no answer in time")
                if isinstance(failure, RemotingError) or attempt:
                    return


class TransactionChecker:
    """Answers the broker's checks by a callback."""

    def __init__(self, group: str, callback: Check) -> None:
        self._group, self._callback = group, callback
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, channel: Channel, header: CheckTransactionStateRequestHeader, message: MessageExt) -> None:
        """Ask the callback, and send its answer over the connection of the check."""
        if len(self._tasks) >= CHECKS_MAX:
            log.warning("the check of transaction %s is dropped: %d others run", message.msg_id, CHECKS_MAX)
            return
        task = asyncio.create_task(self._answer(channel, header, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish the running checks."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, channel: Channel, header: CheckTransactionStateRequestHeader, message: MessageExt) -> None:
        state = await self._state_of(message)
        end = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state,
            msg_id=message.msg_id,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
            topic=message.topic,
        )
        channel.invoke_oneway(RequestCode.END_TRANSACTION, end)

    async def _state_of(self, message: MessageExt) -> TransactionState:
        try:
            outcome = self._callback(message)
            state = await outcome if inspect.isawaitable(outcome) else outcome
            if not isinstance(state, TransactionState):
                raise TypeError(f"check must return a TransactionState, not {type(state).__name__}")
            return state
        except Exception:
            log.exception("checking transaction %s of %s failed; the broker will ask again", message.msg_id, message.topic)
            return TransactionState.UNKNOWN
