"""Names of client versions: `V4_9_4` for the ordinal 401 that a client sends with each request."""

from typing import Final

NEWER: Final = "HIGHER_VERSION"

_ALPHA_AND_BETA: Final = (
    *("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5", "BETA6_SNAPSHOT", "BETA6", "BETA7_SNAPSHOT"),
    *("BETA7", "BETA8_SNAPSHOT", "BETA8", "BETA9_SNAPSHOT", "BETA9", "FINAL"),
)
_MINORS: Final = (
    (3, 0, range(1, 16)),
    *((3, minor, range(0 if minor <= 2 else 1, 10)) for minor in range(1, 10)),
    *((major, minor, range(10)) for major in (4, 5) for minor in range(10)),
)
"""Major and minor number, and the patch numbers that exist."""
_NAMES: Final = (
    *(f"V3_0_0_{stage}" for stage in _ALPHA_AND_BETA),
    *(
        f"V{major}_{minor}_{last}{stage}"
        for major, minor, numbers in _MINORS
        for last in numbers
        for stage in ("_SNAPSHOT", "")
    ),
)


def version_name(ordinal: int) -> str:
    """Return the name of a version; HIGHER_VERSION if it is newer than those that are known."""
    return _NAMES[ordinal] if 0 <= ordinal < len(_NAMES) else NEWER


def version_ordinal(numbers: str) -> int:
    """Return the ordinal of a version such as `5.0.8`; of the newest that is known for one that is not."""
    name = "V" + numbers.partition("-")[0].replace(".", "_")
    return _NAMES.index(name) if name in _NAMES else len(_NAMES) - 1
