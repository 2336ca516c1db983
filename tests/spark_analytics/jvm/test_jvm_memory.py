"""The reader in Java keeps no memory outside the heap for files that it has closed."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

FILES = 200
ALLOWED = 20  # direct buffers of other threads


def direct_buffers(jvm: Any) -> int:
    """Return the number of direct buffers of the JVM."""
    kind = jvm.java.lang.Class.forName("java.lang.management.BufferPoolMXBean")
    pools = jvm.java.lang.management.ManagementFactory.getPlatformMXBeans(kind)
    return next(int(pool.getCount()) for pool in pools if pool.getName() == "direct")


def test_direct_buffers_are_reused(jvm_spark: Any, tmp_path: Path) -> None:
    jvm = jvm_spark._jvm
    path = tmp_path / "file"
    path.write_bytes(bytes(5000) + b"x")
    before = direct_buffers(jvm)
    for _ in range(FILES):
        opened = jvm.pocketmq.spark.files.LocalFiles.INSTANCE.open(str(path))
        assert bytes(opened.bytes(0, 6000)) == path.read_bytes()
        assert opened.nextWritten(10, 6000) in range(4993, 5001)
        opened.close()
    assert direct_buffers(jvm) - before < ALLOWED
