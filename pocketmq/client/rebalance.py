"""Allocation of a topic's queues to the consumers of a group; every client computes the same result."""

from collections.abc import Sequence

from pocketmq.remoting.bodies import MessageQueue


def allocate_averagely(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
    """AllocateMessageQueueAveragely: contiguous queues in sorted order.

    Both sequences are sorted here, so that all clients see the same order. A client that is not listed (yet) gets no queues.
    """
    ids = sorted(client_ids)
    if client_id not in ids:
        return []
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return share(ordered, len(ids), ids.index(client_id))


def share(queues: Sequence[MessageQueue], clients: int, index: int) -> list[MessageQueue]:
    """Return the contiguous queues of one of some clients; the first clients get one more if they do not divide evenly."""
    size, extra = divmod(len(queues), clients)
    start = index * size + min(index, extra)
    return list(queues[start : start + size + (index < extra)])
