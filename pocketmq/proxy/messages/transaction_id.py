"""TransactionId: all that END_TRANSACTION needs, as the text that clients get as the id of a transaction.

So a transaction can be ended at any front, also after a restart. The broker checks that the fields name a half message.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import msgspec

from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal

_SIZE_MAX = 4096


class TransactionId(NamedTuple):
    """Place of a half message, its producer group, and the transaction id under which it is stored."""

    broker_name: str
    commit_log_offset: int
    queue_offset: int
    producer_group: str
    stored_id: str

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> "TransactionId":
        """Parse an id. Raises Refusal."""
        if not text.strip():
            raise Refusal(pb.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        try:
            if len(text) > _SIZE_MAX:
                raise ValueError
            return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, binascii.Error, msgspec.DecodeError):
            raise Refusal(pb.INVALID_TRANSACTION_ID, "the transaction id is not one that this server gave") from None
