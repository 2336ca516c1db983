"""Number of random cases of a test: few, or many with POCKETMQ_LONG=true, which `make test-long` sets."""

import os
from typing import Final

IS_LONG: Final = os.environ.get("POCKETMQ_LONG") == "true"


def cases(few: int, many: int) -> int:
    """`few` must show each kind of case; `many` repeats them in other combinations."""
    return many if IS_LONG else few
