"""Allocation of queues to the clients of a group."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.consuming.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    allocated,
)
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


def ids(strategy: AllocationStrategy, queues: list[MessageQueue], clients: list[str]) -> list[list[int]]:
    return [[queue.queue_id for queue in allocated(strategy, queues, clients, client)] for client in clients]


def test_circle_deals_queues_out_in_turn() -> None:
    queues = [MessageQueue("b", i, "T") for i in range(7)]
    assert ids(AveragelyByCircle(), queues, ["c1", "c2", "c3"]) == [[0, 3, 6], [1, 4], [2, 5]]


def test_consistent_hash_gives_the_shares_of_javas_client() -> None:
    names = ("far@b", "near@a", "near@b", "plain")
    queues = [MessageQueue(name, i, "T") for name in names for i in range(5)]
    clients = ["10.0.0.1@far", "10.0.0.2@near", "10.0.0.3@near"]
    shares = [
        [f"{queue.broker_name}:{queue.queue_id}" for queue in allocated(ConsistentHash(), queues, clients, one)]
        for one in clients
    ]
    assert [" ".join(one) for one in shares] == [  # as of AllocateMessageQueueConsistentHash of 4.9.4
        "far@b:3 near@a:0 near@a:1 near@a:2 near@a:3 near@b:3 near@b:4 plain:0 plain:1 plain:3",
        "far@b:0 far@b:1 far@b:4 near@a:4 near@b:2 plain:2",
        "far@b:2 near@b:0 near@b:1 plain:4",
    ]


@given(QUEUES, CLIENTS)
def test_consistent_hash_moves_only_the_queues_of_a_client_that_leaves(
    queues: list[MessageQueue], clients: list[str]
) -> None:
    strategy = ConsistentHash()
    before = {queue: one for one in clients for queue in allocated(strategy, queues, clients, one)}
    assert set(before) == set(queues)
    rest = clients[1:]
    after = {queue: one for one in rest for queue in allocated(strategy, queues, rest, one)}
    assert all(after[queue] == one for queue, one in before.items() if one != clients[0] and rest)


def test_rooms_share_the_queues_of_their_brokers() -> None:
    queues = [MessageQueue(name, i, "T") for name in ("near@b", "far@b", "plain") for i in range(3)]
    assert ids(ByMachineRoom({"near"}), queues, ["c1", "c2"]) == [[0, 2], [1]]
    nearby = MachineRoomNearby(room_of_client=lambda client_id: client_id.partition("@")[2])
    shares = [allocated(nearby, queues, ["1@near", "2@far"], one) for one in ("1@near", "2@far")]
    assert [queue.broker_name for queue in shares[0]] == ["near@b"] * 3 + ["plain"] * 2
    assert [queue.broker_name for queue in shares[1]] == ["far@b"] * 3 + ["plain"]
    assert nearby.name == "MACHINE_ROOM_NEARBY-AVG"


def test_configured_queues_are_those_that_exist() -> None:
    strategy = ByConfig([MessageQueue("b", 1, "T"), MessageQueue("b", 9, "T")])
    assert ids(strategy, [MessageQueue("b", i, "T") for i in range(3)], ["c1"]) == [[1]]
