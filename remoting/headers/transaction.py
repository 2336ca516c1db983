"""Transactions: how a producer ends one, and how the broker asks about one that it did not hear of."""

from pocketmq.remoting.header import I32, I64, CommandHeader


class EndTransactionRequestHeader(CommandHeader):
    """END_TRANSACTION. The half message is named by its queue offset and its physical offset.

    `commit_or_rollback` is a transaction type of sysFlag: 8 commits, 12 rolls back, 0 is not known yet.
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
    """CHECK_TRANSACTION_STATE; what the answer, an END_TRANSACTION, is to name."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader):
    """RESUME_CHECK_HALF_MESSAGE. `msg_id` is an offsetMsgId; 5.x names the topic too."""

    msg_id: str
    topic: str | None = None
