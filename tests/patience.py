"""Patience of tests that wait for an event."""

from typing import Final

PATIENCE_S: Final = 90.0
"""Ends only a wait for something that never happens: a test goes on as soon as it happens, also beside a heavy load."""
