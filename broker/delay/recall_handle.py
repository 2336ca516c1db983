"""The handle by which a sender takes a timer message back, in 5.x's form.

`v1 topic brokerName timestamp uniqueKey` in URL-safe base64. Clients hand it around unread, but take the broker's name out
of it to know whom to ask. The timestamp is TIMER_OUT_MS + 1: any time that is rounded to the message's slot would do.
"""

import base64
import binascii
from typing import Final, NamedTuple

_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """What a handle says; `timestamp` is text, as it was found."""

    topic: str
    broker_name: str
    timestamp: str
    unique_key: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Raises ValueError, in 5.5.0's words, for what is no handle. Padding may be left out, as Java allows."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        parts = data.decode().split(" ")
    except (binascii.Error, ValueError) as error:
        raise ValueError("recall handle is invalid") from error
    if len(parts) < 5 or parts[0] != _VERSION or not all(parts[:5]):
        raise ValueError("recall handle is invalid")
    return RecallHandle(*parts[1:5])
