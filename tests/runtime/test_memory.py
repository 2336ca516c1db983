"""Memory that is free again goes back to the system."""

import subprocess
import sys

SCRIPT = """
from runtime.memory import MemoryTrimmer, anonymous_bytes

trimmer = MemoryTrimmer()
trimmer.look()
before = anonymous_bytes()
kept, freed = [], []
for _ in range(60_000):
    freed.append(bytearray(1_000))
    kept.append(bytearray(10))
peak = anonymous_bytes()
# What was allocated last stays, so that the heap cannot shrink from its end.
last = bytearray(1_000)
freed.clear()
trimmer.look()
print(before, peak, anonymous_bytes())
"""


def test_freed_memory_between_what_is_kept_is_given_back():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    before, peak, after = map(int, done.stdout.split())
    assert peak - before > 50 << 20
    assert after - before < (peak - before) / 3
