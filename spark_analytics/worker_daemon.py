"""Spark's daemon of Python workers, with two things mended (Spark 4.3). Run as `python -m`.

A worker that was idle for a minute finds its connection closed, and wants to say so through it. Over TCP that goes nowhere;
over a Unix socket it fails at once, and the daemon prints a traceback each time.

After each task a worker collects garbage, and goes over all that numpy, PyArrow and Spark have ever made. What is there
after its first task is put out of the collector's sight. (To ask the collector whether it was takes 3 ms: it counts.)
"""

import gc
from typing import Any

from pyspark import daemon

_served = daemon.worker
_is_frozen = False


def worker(connection: Any, authenticated: bool) -> int:
    """One task of a worker, as Spark's; its exit code."""
    global _is_frozen  # a worker is a process of its own, forked from this one
    try:
        code = int(_served(connection, authenticated))
    except ConnectionError:
        return 1
    if not _is_frozen:
        gc.collect()
        gc.freeze()
        _is_frozen = True
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
