"""Names of the brokers that stores belong to.

A broker does not write its name into its log. Its store has it

1. in the file brokerIdentity, if the broker has a controller (5.x): cluster, name and id, separated by `;`;
2. in config/topics.json, where each broker keeps a topic of its own name, with one queue and a permission that only the
   built-in topics have. 5.x has another topic, whose name is a prefix and the broker's name.

The topics do not tell the name if several of them qualify, as after the broker was renamed. Then, and for a log without
its store, the folder names the broker: `/data/broker-a/store` and `/data/broker-a/commitlog` belong to broker-a. A slave has
the name of its master.
"""

import logging
import posixpath
import re
from typing import Any, Final

from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder

log = logging.getLogger(__name__)

IDENTITY: Final = "brokerIdentity"
MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
# Built-in topics that also have the permission.
_OTHERS: Final = {"TBW102"}
_PERM_INHERIT: Final = 1
# Folders whose names say nothing about the broker.
_COMMON: Final = {"store", "commitlog", ""}


def broker_name(root: str) -> str:
    """Return the name of the broker whose store is in a folder. Raises OSError."""
    store = StoreFolder(root)
    try:
        topics = store.table("topics.json", "topicConfigTable")
    except DamagedFileError as error:
        log.warning("%s: the broker's name is taken from elsewhere", error)
        topics = {}
    return _of_identity(store) or _of_topics(topics) or _of_folder(root)


def _of_identity(store: StoreFolder) -> str:
    parts = re.split("[;#]", str(store.bytes_of(IDENTITY) or b"", "utf-8", "replace").strip())
    return parts[1] if len(parts) == 3 else ""


def _of_topics(topics: dict[str, Any]) -> str:
    named = [topic.removeprefix(MEMBER_PREFIX) for topic in topics if topic.startswith(MEMBER_PREFIX)]
    clusters = {topic.removesuffix(REPLY_SUFFIX) for topic in topics if topic.endswith(REPLY_SUFFIX)}
    own = [
        topic
        for topic, fields in topics.items()
        if _is_built_in(fields) and topic not in clusters | _OTHERS and not topic.startswith(MEMBER_PREFIX)
    ]
    for found in (named, own):
        if len(found) == 1:
            return found[0]
    return ""


def _is_built_in(fields: Any) -> bool:
    if not isinstance(fields, dict):
        return False
    perm = fields.get("perm")
    queues = (fields.get("readQueueNums"), fields.get("writeQueueNums"))
    return isinstance(perm, int) and perm & _PERM_INHERIT > 0 and queues == (1, 1)


def _of_folder(root: str) -> str:
    path = root.rstrip("/")
    while posixpath.basename(path) in _COMMON and path not in ("", posixpath.dirname(path)):
        path = posixpath.dirname(path)
    return posixpath.basename(path)
