"""Spark's daemon of Python workers with two fixes (for Spark 4.3). Run as `python -m`.

When a worker has been idle for a minute, its connection is closed, and it tries to report that through the connection. Over
TCP that has no effect; over a Unix socket it fails, and the daemon prints a traceback each time.

After each task a worker collects garbage, traversing all objects of numpy, PyArrow and Spark. Here the objects that exist
after a worker's first task are frozen, that is, excluded from collection. (A flag records it, as asking the collector is
slow.)
"""

import gc
from typing import Any

from pyspark import daemon

_served = daemon.worker
_is_frozen = False


def worker(connection: Any, authenticated: bool) -> int:
    """Run one task as Spark's worker does; return its exit code."""
    global _is_frozen  # a worker is a separate process, forked from this one
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
