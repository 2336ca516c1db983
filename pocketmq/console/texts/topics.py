"""Texts of the pages about topics."""

from typing import Final

TEXTS: Final[dict[str, tuple[str, str]]] = {}
