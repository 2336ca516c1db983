"""Check of the options `topic` and `queueId` against the topics and queues of the stores that are read.

A topic is known if it has a ConsumeQueue, or an entry in config/topics.json. Stores without that file, such as single log
files and partial copies, do not list the topics that they hold, so every name is accepted there.
"""

import posixpath
from collections.abc import Iterable
from typing import Final

from pocketmq.spark_analytics.reading.options import ReadOptions, nearest
from pocketmq.store.offline.places import LogFile
from pocketmq.store.offline.store_folder import StoreFolder

NAMES_LENGTH_MAX: Final = 400


class UnknownTopicError(ValueError):
    """A topic or queue that no store knows."""


def check_known(options: ReadOptions, files: Iterable[LogFile]) -> None:
    """Raise UnknownTopicError for a topic or queue of the options that none of the stores knows."""
    if options.ignore_unknown_topics or (options.topics is None and options.queue_ids is None):
        return
    stores = [StoreFolder(root) for root in dict.fromkeys(posixpath.dirname(file.folder) for file in files)]
    topics = {store.root: _topics(store) for store in stores}
    if not stores or not all(topics.values()):
        return
    known = sorted(set().union(*topics.values()))
    named = ", ".join(topics)
    for topic in sorted(options.topics or ()):
        if topic not in known:
            near = nearest(topic, known)
            raise UnknownTopicError(
                f"option topic is {topic}, which is not a topic of {named}: {near[:NAMES_LENGTH_MAX]}. If only the log has "
                'records of it, as of a deleted topic, select them by .where("topic = ...")'
            )
    if options.queue_ids is not None:
        asked = known if options.topics is None else options.topics
        ids = set[int]().union(*(_queue_ids(store, topic) for store in stores for topic in asked))
        unknown = sorted(options.queue_ids - ids)
        if unknown:
            whose = "no topic" if options.topics is None else f"not a queue of {', '.join(sorted(options.topics))}"
            raise UnknownTopicError(f"option queueId is {unknown[0]}: {whose} in {named}; the queues are {_ranges(ids)}")


def _topics(store: StoreFolder) -> set[str]:
    listed = set(store.topics())
    return listed | set(store.names("consumequeue")) if listed else listed


def _queue_ids(store: StoreFolder, topic: str) -> set[int]:
    fields = store.topics().get(topic)
    counts = [fields.get(name) for name in ("readQueueNums", "writeQueueNums")] if isinstance(fields, dict) else []
    count = max((count for count in counts if isinstance(count, int)), default=0)
    folders = store.queue_ids(topic) if "/" not in topic else []
    return {*range(min(count, 1 << 16)), *folders}


def _ranges(ids: set[int]) -> str:
    return f"{min(ids)} to {max(ids)}" if ids else "none"
