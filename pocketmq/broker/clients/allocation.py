"""Queue allocation among the consumers of a group, when the broker does it (Apache: QueryAssignmentProcessor)."""

from collections.abc import Sequence
from typing import TypeVar

Q = TypeVar("Q")


def average(queues: Sequence[Q], clients: Sequence[str], client_id: str) -> list[Q]:
    """Strategy AVG: each client gets adjacent queues; a remainder goes to the first clients, one queue each."""
    if client_id not in clients:
        return []
    index, share, more = clients.index(client_id), *divmod(len(queues), len(clients))
    start = index * share + min(index, more)
    return list(queues[start : start + share + (index < more)])


def by_circle(queues: Sequence[Q], clients: Sequence[str], client_id: str) -> list[Q]:
    """Strategy AVG_BY_CIRCLE: each of n clients gets every n-th queue."""
    return list(queues[clients.index(client_id) :: len(clients)]) if client_id in clients else []


STRATEGIES = {"AVG": average, "AVG_BY_CIRCLE": by_circle}


def shared_for_pop(
    strategy: str, queues: Sequence[Q], clients: Sequence[str], client_id: str, share_num: int
) -> list[Q] | None:
    """Return the queues from which a client pops: its own share and those of the next `share_num` clients.

    None: with `share_num` <= 0, or one that covers all clients, the client pops from any queue.
    """
    if share_num <= 0 or share_num >= len(clients) - 1:
        return None
    if client_id not in clients or not queues:
        return []
    index = clients.index(client_id)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    neighbours = [clients[(index + step) % len(clients)] for step in range(share_num + 1)]
    return [queue for one in neighbours for queue in STRATEGIES[strategy](queues, clients, one)]
