"""The table of consumed messages: a service's database knows which messages it has consumed, so each counts once.

RocketMQ delivers a message at least once: again after a crash, or because it was sent twice. The key of the table is the
message's tag, its key (the order's number) and the consumer group; a message's id would not do, since a message that is sent
twice has two. The row is written by the transaction that the message causes, so there are both or neither.
"""

from examples.shop.database import ATTEMPTS, Transaction
from pocketmq import MessageExt

TABLE = """
CREATE TABLE IF NOT EXISTS consumed (
    tag TEXT, message_key TEXT, consumer_group TEXT, state TEXT, failures INTEGER, version INTEGER,
    PRIMARY KEY (tag, message_key, consumer_group)
);
"""
DONE, FAILING, FAILED = "done", "failing", "failed"
_ROW = "tag = ? AND message_key = ? AND consumer_group = ?"


def is_first(transaction: Transaction, group: str, message: MessageExt) -> bool:
    """Note a message as consumed by this transaction; return False if it was consumed before."""
    return _note(transaction, group, message, DONE, failures=0)


def note_failure(transaction: Transaction, group: str, message: MessageExt) -> bool:
    """Count a failed attempt; return whether it was the last one."""
    row = transaction.row(f"SELECT failures FROM consumed WHERE {_ROW}", message.tags, message.keys, group)
    failures = (row[0] if row else 0) + 1
    is_last = failures >= ATTEMPTS
    return _note(transaction, group, message, FAILED if is_last else FAILING, failures) and is_last


def _note(transaction: Transaction, group: str, message: MessageExt, state: str, failures: int) -> bool:
    key = (message.tags, message.keys, group)
    if transaction.execute("INSERT INTO consumed VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING", *key, state, failures):
        return True
    before, version = transaction.row(f"SELECT state, version FROM consumed WHERE {_ROW}", *key) or ("", 0)
    if before == DONE:
        return False
    update = f"UPDATE consumed SET state = ?, failures = ?, version = version + 1 WHERE {_ROW} AND version = ?"
    transaction.change(update, state, failures, *key, version)
    return True
