"""Which queues of a topic belong to which consumer of a group: every client computes the same answer by itself."""

from collections.abc import Sequence

from pocketmq.remoting.bodies import MessageQueue


def allocate_averagely(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
    """AllocateMessageQueueAveragely: neighbours in sorted order, the first clients get one more where it does not divide.

    Both sequences are sorted here, so that all clients see the same order. A client that is not (yet) listed gets nothing.
    """
    ids = sorted(client_ids)
    if client_id not in ids:
        return []
    index = ids.index(client_id)
    share, extra = divmod(len(queues), len(ids))
    start = index * share + min(index, extra)
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return ordered[start : start + share + (1 if index < extra else 0)]
