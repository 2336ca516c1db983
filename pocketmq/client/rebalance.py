"""Allocation of a topic's queues to the consumers of a group; every client computes the same result."""

from collections.abc import Sequence

from pocketmq.remoting.bodies import MessageQueue


def allocate_averagely(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
    """AllocateMessageQueueAveragely: contiguous queues in sorted order; the first clients get one more if the queues
    do not divide evenly.

    Both sequences are sorted here, so that all clients see the same order. A client that is not listed (yet) gets no queues.
    """
    ids = sorted(client_ids)
    if client_id not in ids:
        return []
    index = ids.index(client_id)
    share, extra = divmod(len(queues), len(ids))
    start = index * share + min(index, extra)
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return ordered[start : start + share + (1 if index < extra else 0)]
