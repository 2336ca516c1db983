"""Memory of the tests' process, after a collection: what earlier tests left in cycles would be freed at any moment."""

import gc
import tracemalloc

from pocketmq.store.disk import open_files


def resident_memory() -> int:
    """Return the resident bytes of files in this process."""
    gc.collect()
    return open_files.resident_memory()


def traced_memory() -> int:
    """Return the bytes allocated since `tracemalloc.start()` and still in use."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
