"""Requests of a slave about its master's log."""

from typing import Final

from pocketmq.remoting.bodies import KVTable, decode_body
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.query import ViewMessageRequestHeader
from pocketmq.runtime.peer_text import clipped

OFFSET_TEXT_MAX: Final = 19
"""Digits of the largest physical offset."""


async def master_log_offset(client: RemotingClient, address: str, key: str) -> int:
    """Return `commitLogMinOffset`, `commitLogMaxOffset` or `dispatchBehindBytes` of the broker at `address`.

    Raises OSError, TimeoutError, RemotingError, or ValueError for an answer that is no offset.
    """
    answer = await client.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    text = decode_body(KVTable, answer.body).table.get(key, "")
    if not text.isascii() or not text.isdecimal() or len(text) > OFFSET_TEXT_MAX:
        raise ValueError(f"{key} of {address} is {clipped(text)!r}, not a physical offset")
    return int(text)


async def master_record(client: RemotingClient, address: str, physical_offset: int) -> bytes | None:
    """Return the record at `physical_offset` of the broker at `address`, None if none begins there.

    Raises OSError or TimeoutError.
    """
    answer = await client.invoke(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(physical_offset))
    return bytes(answer.body) if answer.code == ResponseCode.SUCCESS else None
