"""A group of ordered consumers, each in its own process, and the time that its queues stand still when a member leaves."""

import bisect
import itertools
import threading
import time
from dataclasses import dataclass

from tests.interop.driver import Driver
from tests.interop.drivers import Drivers
from tests.interop.patience import wait
from tests.interop.servers import Cluster
from tests.interop.wire import SEND_MESSAGE_V2, Connection, send_fields

PERIOD_S = 0.025  # between two messages of a queue
FLOWING_MS = 1000  # a queue without a message for this long stands still
WATCHED_S = 3.0  # how long a change is watched at least


@dataclass(frozen=True)
class Change:
    """For each queue of a member that left, and of the others, the longest time without a message afterwards."""

    leaver_ms: list[float]
    others_ms: list[float]


class Member:
    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.driver = driver
        self.count = 0  # number of its messages that are in `OrderedGroup._arrivals`


class OrderedGroup:
    """Members of one group on one topic; every queue gets a message each PERIOD_S from `start` to `close`."""

    def __init__(
        self, cluster: Cluster, drivers: Drivers, client_name: str, topic: str, queue_count: int, **env: str
    ) -> None:
        self._cluster, self._drivers, self._client_name, self._env = cluster, drivers, client_name, env
        self._topic, self._group = topic, f"{topic}-g"
        self._numbers = itertools.count()
        self._arrivals: list[list[tuple[float, int, str]]] = [[] for _ in range(queue_count)]  # (ms, offset, member)
        self.members: list[Member] = []
        self._left: list[Member] = []
        self._ended = threading.Event()
        self._feeder = threading.Thread(target=self._feed, name="feeder", daemon=True)
        with Connection(cluster.broker_address) as connection:
            connection.create_topic(topic, queue_count)

    def start(self) -> None:
        self._feeder.start()

    def close(self) -> None:
        self._ended.set()
        self._feeder.join()
        for member in self.members:
            member.driver.kill()

    def join(self) -> None:
        """Starts another member."""
        member = Member(f"m{next(self._numbers)}", self._drivers.another(self._client_name, self._cluster, **self._env))
        self.members.append(member)
        member.driver.start_consumer(member.name, self._group, self._topic, orderly="true")

    def wait_balanced(self, timeout_s: float) -> None:
        """Waits until every queue is consumed, and every member consumes its share of them."""
        wait(self._is_balanced, f"messages in all queues, at {len(self.members)} members", timeout_s)

    def leave(self, member: Member, how: str, timeout_s: float) -> Change:
        """Ends a member by `shutdown` or `kill`; returns how long the queues stood still until all were consumed again."""
        self._update()
        queues = {queue for queue, arrivals in enumerate(self._arrivals) if arrivals and arrivals[-1][2] == member.name}
        began_ms = time.time() * 1000
        self.members.remove(member)
        self._left.append(member)
        if how == "kill":
            member.driver.kill()
        else:
            member.driver.shutdown(member.name)
            member.driver.close()
        wait(
            lambda: time.time() * 1000 > began_ms + WATCHED_S * 1000 and self._is_flowing(),
            f"all queues of {self._topic} after the {how} of {member.name}", timeout_s,
        )  # fmt: skip
        gaps = [self._gap_ms(queue, began_ms) for queue in range(len(self._arrivals))]
        return Change(
            [gap for queue, gap in enumerate(gaps) if queue in queues],
            [gap for queue, gap in enumerate(gaps) if queue not in queues],
        )

    def offsets(self) -> list[list[int]]:
        """Returns the queue offsets of each queue's messages, in the order in which they came."""
        self._update()
        return [[offset for _, offset, _ in sorted(arrivals)] for arrivals in self._arrivals]

    def _update(self) -> None:
        for member in self.members + self._left:
            for message in member.driver.received(member.name, member.count):
                row = (float(message.arrived_at_ms), message.queue_offset, member.name)
                bisect.insort(self._arrivals[message.queue_id], row)
                member.count += 1

    def _is_flowing(self) -> bool:
        self._update()
        oldest_ms = time.time() * 1000 - FLOWING_MS
        return all(arrivals and arrivals[-1][0] > oldest_ms for arrivals in self._arrivals)

    def _is_balanced(self) -> bool:
        if not self._is_flowing():
            return False
        share = len(self._arrivals) // len(self.members)
        owners = [arrivals[-1][2] for arrivals in self._arrivals]
        return all(owners.count(member.name) >= share for member in self.members)

    def _gap_ms(self, queue: int, began_ms: float) -> float:
        """The longest time between two messages of a queue, since the last one before `began_ms`."""
        times = [arrival[0] for arrival in self._arrivals[queue]]
        times = times[max(bisect.bisect_left(times, began_ms) - 1, 0) :]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)

    def _feed(self) -> None:
        due = time.monotonic()
        with Connection(self._cluster.broker_address) as connection:
            while not self._ended.is_set():
                for queue in range(len(self._arrivals)):
                    connection.call(SEND_MESSAGE_V2, send_fields(self._topic, queue), b"x")  # a busy broker may refuse it
                due = max(due + PERIOD_S, time.monotonic())
                self._ended.wait(due - time.monotonic())
