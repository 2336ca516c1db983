"""Allocation of queues to the clients of a group."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.consuming.allocation import Averagely, allocated
from pocketmq.remoting.bodies import MessageQueue

QUEUES = st.integers(0, 40).map(lambda count: [MessageQueue(f"b{i % 3}", i // 3, "T") for i in range(count)])
CLIENTS = st.lists(st.text("abc@#19", min_size=1), min_size=1, max_size=12, unique=True)


@given(QUEUES, CLIENTS, st.randoms(use_true_random=False))
def test_each_queue_has_one_client_and_shares_differ_by_at_most_one(queues, clients, random) -> None:  # type: ignore[no-untyped-def]
    shares = []
    for client in clients:  # each client sees the lists in another order
        seen_queues, seen_clients = random.sample(queues, len(queues)), random.sample(clients, len(clients))
        shares.append(allocated(Averagely(), seen_queues, seen_clients, client))
    given_out = [queue for share in shares for queue in share]
    assert len(given_out) == len(queues) and set(given_out) == set(queues)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_shares_match_apache() -> None:
    queues = [MessageQueue("b", i, "T") for i in range(8)]
    ids = [[queue.queue_id for queue in allocated(Averagely(), queues, ["c1", "c2", "c3"], c)] for c in ("c1", "c2", "c3")]
    assert ids == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_unlisted_client_gets_no_queues() -> None:
    assert allocated(Averagely(), [MessageQueue("b", 0, "T")], ["other"], "me") == []
