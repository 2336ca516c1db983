"""Members of an ordered group leave, by a clean shutdown or by SIGKILL: the others take over their queues soon.

Clients request a refused lock again after 20 s, and Apache's broker keeps the locks of a killed consumer for 60 s. Queues
that move between the members that stay are measured by `bench/ordered_leave.py` only: a client with unprocessed messages of
such a queue unlocks it 20 s late.
"""

from pathlib import Path

import pytest

from tests.interop.drivers import Drivers, needed
from tests.interop.ordered_group import OrderedGroup
from tests.interop.servers import Cluster, Pocketmq

QUEUES = 8
PATIENCE_S = 120.0
GRACE_S = 2.0
LONG_MS = 15_000  # the clients' periods are 20 s


@pytest.mark.long
@pytest.mark.parametrize("client_name", ["java_4_9_4", "java_5_5_0"])
def test_queues_of_members_that_leave_are_taken_over_soon(client_name: str, drivers: Drivers, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Pocketmq(), lockGraceMillis=int(GRACE_S * 1000))
    try:
        cluster.start_broker()
        # 4.9.4 begins with a new queue when it renews its locks.
        options = {"JAVA_TOOL_OPTIONS": "-Drocketmq.client.rebalance.lockInterval=1000"}
        group = OrderedGroup(cluster, drivers, client_name, "Leave", QUEUES, **options)
        try:
            group.start()
            with needed(client_name):
                for _ in range(3):
                    group.join()
            group.wait_balanced(PATIENCE_S)
            changes = [group.leave(group.members[1], how, PATIENCE_S) for how in ("shutdown", "kill")]
            offsets = group.offsets()
        finally:
            group.close()
    finally:
        cluster.close()
    for change in changes:
        assert change.leaver_ms, "the member had no queue"
        assert max(change.leaver_ms) < LONG_MS, change
    assert min(changes[1].leaver_ms) > GRACE_S * 1000 / 2, "the queues of a killed member were taken over without a pause"
    for queue in offsets:
        highest = -1
        for offset in queue:
            assert offset <= highest + 1, "a message was skipped"
            highest = max(highest, offset)
