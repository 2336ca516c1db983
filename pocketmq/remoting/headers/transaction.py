"""Transactions: ending one, and the broker's check of an undecided one."""

from pocketmq.remoting.header import I32, I64, CommandHeader


class EndTransactionRequestHeader(CommandHeader):
    """END_TRANSACTION. The half message is identified by its queue offset and its physical offset.

    `commit_or_rollback` is a transaction type of sysFlag: 8 commit, 12 rollback, 0 not known yet.
    """

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    topic: str | None = None


class CheckTransactionStateRequestHeader(CommandHeader):
    """CHECK_TRANSACTION_STATE. The END_TRANSACTION that answers it repeats these fields."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader):
    """RESUME_CHECK_HALF_MESSAGE. `msg_id` is an offsetMsgId; 5.x also sends the topic."""

    msg_id: str
    topic: str | None = None
