"""Amount of tests: the default run, or all cases with POCKETMQ_LONG=true, which `make test-long` sets.

The default run shows each kind of case. The long one has the other combinations of the same kinds: more random cases, the
second version of Apache or of a client where both behave alike, the second engine of a command, both ways to end a broker.
Tests marked `long` run only there.
"""

import os
from typing import Final, TypeVar

IS_LONG: Final = os.environ.get("POCKETMQ_LONG") == "true"
T = TypeVar("T")


def cases(few: T, many: T) -> T:
    """Return the number or the list of cases of this run; `few` must show each kind of case."""
    return many if IS_LONG else few
