"""Runs one attack: `python -m bench.hostile.attacker NAME --namesrv ADDR --broker ADDR --seconds N`."""

import argparse
import contextlib
import json
import os
import resource

from bench.hostile.attacks import ATTACKS
from bench.hostile.peer import Peer

NICENESS = 5
"""A real attacker uses another machine; here it must not take the servers' CPU time."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile.attacker", description=__doc__)
    parser.add_argument("name", choices=ATTACKS)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--metrics", default="", help="address of the broker's metricsPort")
    parser.add_argument("--grpc", default="", help="address of the broker's gRPC port")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1e6, help="bytes a second (1,000,000)")
    options = parser.parse_args()
    os.nice(NICENESS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    peer = Peer(options.namesrv, options.broker, options.seconds, options.rate, options.metrics, options.grpc)
    try:
        ATTACKS[options.name](peer)
    finally:
        peer.close_all()
    sent = {"sent": peer.sent, "calls": peer.calls, "refused": peer.refused}
    print(json.dumps({**sent, "slave_p99": peer.slave_p99_ms}))


if __name__ == "__main__":
    main()
