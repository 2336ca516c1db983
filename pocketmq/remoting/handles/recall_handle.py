"""Recall handle, in 5.x's form, with which a sender cancels a timer message.

`v1 topic brokerName timestamp uniqueKey` in URL-safe base64. Clients treat it as opaque, except that they read the broker
name from it to find the broker. The timestamp is TIMER_OUT_MS + 1: any time in the message's slot would do.
"""

import base64
import binascii
from typing import Final, NamedTuple

_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """Content of a handle; `timestamp` is kept as text."""

    topic: str
    broker_name: str
    timestamp: str
    unique_key: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a handle. Raises ValueError with 5.5.0's text if it is invalid. Padding may be missing, as Java allows."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        parts = data.decode().split(" ")
    except (binascii.Error, ValueError) as error:
        raise ValueError("recall handle is invalid") from error
    if len(parts) < 5 or parts[0] != _VERSION or not all(parts[:5]):
        raise ValueError("recall handle is invalid")
    return RecallHandle(*parts[1:5])
