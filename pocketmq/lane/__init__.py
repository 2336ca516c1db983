"""The compiled lane: sends and pulls of ordinary messages without the interpreter, in Rust (`crate`).

It is optional. Without the compiled module, which `make setup` builds where cargo is installed, or with POCKETMQ_LANE=0 in
the environment, the Python path serves every request; it gives the same bytes, as tests show. POCKETMQ_LANE=1 requires it.
"""

import os
from importlib import import_module
from typing import Any, Final

VARIABLE: Final = "POCKETMQ_LANE"
"""Environment variable: 0 turns the lane off, 1 makes its absence an error."""
INTERFACE: Final = 13
"""Number of the compiled module's interface, which must be that of the module: a checkout may have an older one."""


class LaneMissing(RuntimeError):
    """The compiled module is required and cannot be imported."""


def compiled_lane() -> tuple[Any, str]:
    """Return the compiled module, or None, and a text that says why.

    Raises LaneMissing if POCKETMQ_LANE=1 and the module cannot be used, ValueError for another value of that variable.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE}={wanted!r} in the environment must be 0 or 1")
    if wanted == "0":
        return None, f"off ({VARIABLE}=0)"
    try:
        module = import_module("pocketmq.lane._lane")
        problem = "" if module.INTERFACE == INTERFACE else "it was built from other sources; `make lane` builds it anew"
    except ImportError:
        module, problem = None, "it is not built; `make setup` builds it where cargo is installed"
    if not problem:
        return module, "on"
    if wanted == "1":
        raise LaneMissing(f"{VARIABLE}=1, but the compiled lane cannot be used: {problem}")
    return None, f"off ({problem})"
