"""Stored messages in the texts in which Apache's tool shows them, as JSON, and bodies in files."""

import base64
from pathlib import Path
from typing import Any, Final

from pocketmq.admin.api.client import queue_text
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.admin.formats import java_text, safe_name, time_millis, write_beside_others
from pocketmq.client.message import MessageExt
from pocketmq.client.sending.outgoing import SendResult

BODIES: Final = Path("/tmp/rocketmq/msgbodys")
"""Folder of the files with bodies, as in Apache's tool."""


def details(stored: StoredMessage, body_path: str, with_offset_id: bool = True) -> list[str]:
    """Return the lines in which the query commands show a message."""
    record, message = stored
    rows = [
        ("Topic", stored.topic),
        ("Tags", f"[{java_text(message.tags)}]"),
        ("Keys", f"[{java_text(message.keys)}]"),
        ("Queue ID", record.queue_id),
        ("Queue Offset", record.queue_offset),
        ("CommitLog Offset", record.physical_offset),
        ("Reconsume Times", record.reconsume_times),
        ("Born Timestamp", time_millis(record.born_timestamp_ms)),
        ("Store Timestamp", time_millis(record.store_timestamp_ms)),
        ("Born Host", stored.born_host),
        ("Store Host", stored.store_host),
        ("System Flag", record.sys_flag),
        ("Properties", properties_text(message.properties)),
        ("Message Body Path", body_path),
    ]
    if with_offset_id:
        rows.insert(0, ("OffsetID", message.offset_msg_id))
    return [f"{name + ':':<20} {value}" for name, value in rows]


def _fields(stored: StoredMessage) -> dict[str, Any]:
    """Return the fields of a message that both `one_line` and JSON show, in the order of Java's MessageExt."""
    record, message = stored
    return {
        "brokerName": message.broker_name,
        "queueId": record.queue_id,
        "storeSize": record.total_size,
        "queueOffset": record.queue_offset,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": stored.born_host,
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": stored.store_host,
        "msgId": message.offset_msg_id,
        "commitLogOffset": record.physical_offset,
        "bodyCRC": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
    }


def one_line(stored: StoredMessage) -> str:
    """Return all of a message in one line, without its body as text."""
    record, message = stored
    body = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in message.body)
    fields = _fields(stored) | {
        "bornHost": f"/{stored.born_host}",
        "storeHost": f"/{stored.store_host}",
        "toString()": f"Message{{topic='{stored.topic}', flag={record.flag}, "
        f"properties={properties_text(message.properties)}, body={f'[{body}]' if message.body else 'null'}, "
        "transactionId='null'}",
    }
    return f"MSGID: {message.msg_id} MessageExt [{', '.join(f'{name}={value}' for name, value in fields.items())}]"


def as_document(stored: StoredMessage) -> dict[str, Any]:
    """Return a message for JSON; a body that is not UTF-8 is `bodyBase64`."""
    message = stored.message
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(message.body).decode()}
    about = {"topic": stored.topic, "flag": stored.record.flag, "properties": message.properties}
    ids = {"msgId": message.msg_id, "offsetMsgId": message.offset_msg_id, "brokerName": message.broker_name or None}
    return {**_fields(stored), **ids, **about, **body}


def send_result_text(sent: SendResult) -> str:
    """Return the result of a send as Apache's tool shows it."""
    return (
        f"SendResult [sendStatus={sent.status}, msgId={sent.msg_id}, offsetMsgId={sent.offset_msg_id}, "
        f"messageQueue={queue_text(sent.queue)}, queueOffset={sent.queue_offset}]"
    )


def properties_text(properties: dict[str, str]) -> str:
    """Return properties as Java shows a map."""
    return "{" + ", ".join(f"{name}={value}" for name, value in properties.items()) + "}"


def write_body(message: MessageExt, number: int = 0) -> str:
    """Write a message's body to a file named by its id; return the path. `number`: for further messages of the same id."""
    BODIES.mkdir(parents=True, exist_ok=True)
    path = BODIES / (safe_name(message.msg_id) + (f"_{number}" if number else ""))
    write_beside_others(path, message.body, 0o600)
    return str(path)
