"""Strategies by which the clients of a group share the queues of a topic (Apache: AllocateMessageQueueStrategy).

Each client allocates by itself, so all clients of a group must use the same strategy and see the same queues and client ids.
Names are those of Java: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, MACHINE_ROOM, MACHINE_ROOM_NEARBY-..., CONFIG.
"""

import bisect
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from pocketmq.remoting.bodies import MessageQueue


class AllocationStrategy(Protocol):
    """Chooses the queues of one client. Both sequences are sorted; a client that is not listed (yet) gets no queues."""

    @property
    def name(self) -> str:
        """Name under which tools show the strategy."""

    def allocate(self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        """Return the queues of `client_id`."""


def queue_order(queue: MessageQueue) -> tuple[str, str, int]:
    """Return the key by which queues are sorted."""
    return queue.topic, queue.broker_name, queue.queue_id


def share(queues: Sequence[MessageQueue], clients: int, index: int) -> list[MessageQueue]:
    """Return the contiguous queues of one of some clients; the first clients get one more if they do not divide evenly."""
    size, extra = divmod(len(queues), clients)
    start = index * size + min(index, extra)
    return list(queues[start : start + size + (index < extra)])


def allocated(
    strategy: AllocationStrategy, queues: Collection[MessageQueue], client_ids: Collection[str], client_id: str
) -> list[MessageQueue]:
    """Return the queues of a client, after sorting so that all clients see the same order."""
    if client_id not in client_ids:
        return []
    return strategy.allocate(sorted(queues, key=queue_order), sorted(client_ids), client_id)


@dataclass(frozen=True)
class Averagely:
    """Contiguous queues (AllocateMessageQueueAveragely), the default."""

    name: ClassVar[str] = "AVG"

    def allocate(self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        return share(queues, len(client_ids), client_ids.index(client_id))


@dataclass(frozen=True)
class AveragelyByCircle:
    """Every n-th queue for n clients (AllocateMessageQueueAveragelyByCircle)."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def allocate(self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True)
class ConsistentHash:
    """Few queues move when a client joins or leaves (AllocateMessageQueueConsistentHash, with Java's hashes)."""

    virtual_nodes: int = 10
    name: ClassVar[str] = "CONSISTENT_HASH"

    def allocate(self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        ring = {_md5_hash(f"{one}-{index}"): one for one in client_ids for index in range(self.virtual_nodes)}
        places = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[places[bisect.bisect_left(places, _md5_hash(text)) % len(places)]]

        return [queue for queue in queues if owner(queue) == client_id]


def _md5_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])


@dataclass(frozen=True)
class ByMachineRoom:
    """The queues of brokers in some machine rooms, averagely (AllocateMessageQueueByMachineRoom).

    A broker's name begins with its room: `room@broker`.
    """

    rooms: Collection[str]
    name: ClassVar[str] = "MACHINE_ROOM"

    def allocate(self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        near = [queue for queue in queues if _room_of(queue) in self.rooms]
        size, extra = divmod(len(near), len(client_ids))
        index = client_ids.index(client_id)
        found = near[index * size : (index + 1) * size]
        return [*found, near[len(client_ids) * size + index]] if index < extra else found


def _room_of(queue: MessageQueue) -> str:
    room, _, broker = queue.broker_name.partition("@")
    return room if broker and "@" not in broker else ""


@dataclass(frozen=True)
class MachineRoomNearby:
    """The queues of a room for its clients, those of rooms without clients for all (AllocateMachineRoomNearby)."""

    room_of_client: Callable[[str], str]
    """Client id -> machine room."""
    room_of_queue: Callable[[MessageQueue], str] = _room_of
    inner: AllocationStrategy = field(default_factory=Averagely)
    """Strategy for the queues of one room."""

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        clients_by_room, queues_by_room = defaultdict(list), defaultdict(list)
        for one in client_ids:
            clients_by_room[self.room_of_client(one)].append(one)
        for queue in queues:
            queues_by_room[self.room_of_queue(queue)].append(queue)
        own_room, found = self.room_of_client(client_id), list[MessageQueue]()
        for room, members in queues_by_room.items():
            if room == own_room or room not in clients_by_room:
                found += self.inner.allocate(members, clients_by_room.get(room, client_ids), client_id)
        return found


@dataclass(frozen=True)
class ByConfig:
    """Fixed queues, for each client its own (AllocateMessageQueueByConfig)."""

    queues: Collection[MessageQueue]
    name: ClassVar[str] = "CONFIG"

    def allocate(self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        return [queue for queue in queues if queue in self.queues]


_BY_NAME: Final[dict[str, AllocationStrategy]] = {
    one.name: one for one in (Averagely(), AveragelyByCircle(), ConsistentHash())
}


def strategy_of(given: str | AllocationStrategy) -> AllocationStrategy:
    """Return a strategy, given itself or the name of one that needs no settings. Raises ValueError."""
    if not isinstance(given, str):
        return given
    if given not in _BY_NAME:
        names = ", ".join(map(repr, _BY_NAME))
        raise ValueError(f"allocation {given!r} is not one of {names}: give an object for another strategy")
    return _BY_NAME[given]
