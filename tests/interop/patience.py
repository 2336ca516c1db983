"""Waiting for another process."""

import time
from collections.abc import Callable

STEP_S = 0.1


def wait(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Returns when `condition()` holds. Raises TimeoutError naming `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(STEP_S)
