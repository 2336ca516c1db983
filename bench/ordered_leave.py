"""How long queues of an ordered group stand still when one of three members leaves, with PocketMQ and Apache 4.9.4.

    python -m bench.ordered_leave --rounds 20 --apache-rounds 3

The members are Apache's Java client, each in a process of its own; every queue gets a message each 25 ms. In each round one
member leaves by `shutdown()`, another is killed (SIGKILL), and both are replaced. For each round and queue the longest
time without a message is shown; queues of the members that stay may be reallocated, too.
"""

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.interop.drivers import Drivers
from tests.interop.ordered_group import Change, OrderedGroup
from tests.interop.servers import Apache, Cluster, Flavour, Pocketmq

HOWS = ("shutdown", "kill")
MEMBERS, QUEUES = 3, 8
PATIENCE_S = 240.0
QUICK_MS = 1000
RENEWAL_S = 20.0  # period of the clients' own timers, with which the rounds must not be in step


def measure(flavour: Flavour, rounds: int, client_name: str, hows: tuple[str, ...], settings: dict[str, object]) -> None:
    """Run the rounds against one broker and print their figures."""
    changes: dict[str, list[Change]] = defaultdict(list)
    chooser = random.Random(34)
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder) / "servers", flavour, **settings)
        try:
            cluster.start_broker()
            group = OrderedGroup(cluster, Drivers(Path(folder)), client_name, "Leave", QUEUES)
            try:
                group.start()
                for how in hows * rounds:
                    while len(group.members) < MEMBERS:
                        group.join()
                    group.wait_balanced(PATIENCE_S)
                    time.sleep(chooser.random() * RENEWAL_S)
                    change = group.leave(chooser.choice(group.members), how, PATIENCE_S)
                    changes[how].append(change)
                    print(f"{flavour.name:9} {how:8} {_shown(change.leaver_ms)} | {_shown(change.others_ms)} ms", flush=True)
            finally:
                group.close()
        finally:
            cluster.close()
    for how in hows:
        _summarise(f"{flavour.name:9} {how:8} the leaver's queues", [change.leaver_ms for change in changes[how]])
        _summarise(f"{flavour.name:9} {how:8} the others' queues ", [change.others_ms for change in changes[how]])


def _shown(gaps: list[float]) -> str:
    return " ".join(f"{gap:6.0f}" for gap in gaps)


def _summarise(name: str, rounds: list[list[float]]) -> None:
    gaps, longest = list(itertools.chain(*rounds)), [max(gaps) for gaps in rounds if gaps]
    quick = sum(gap < QUICK_MS for gap in gaps)
    worst = f"longest of a round: median {statistics.median(longest):6.0f} ms, max {max(longest):6.0f} ms"
    print(f"{name}, {worst}; of a queue: median {statistics.median(gaps):6.0f} ms, below 1 s: {quick} of {len(gaps)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds against PocketMQ")
    parser.add_argument("--apache-rounds", type=int, default=3, help="rounds against Apache 4.9.4, of some minutes each")
    parser.add_argument("--client", default="java_4_9_4", help="java_4_9_4, java_5_5_0 or go_v2")
    parser.add_argument("--how", choices=HOWS, action="append", help="only this way of leaving")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of PocketMQ's broker")
    arguments = parser.parse_args()
    hows = tuple(arguments.how or HOWS)
    settings: dict[str, object] = dict(item.split("=", 1) for item in arguments.set)
    if arguments.rounds:
        measure(Pocketmq(), arguments.rounds, arguments.client, hows, settings)
    if arguments.apache_rounds:
        measure(Apache(), arguments.apache_rounds, arguments.client, hows, {})


if __name__ == "__main__":
    main()
