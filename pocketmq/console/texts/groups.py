"""Texts of the pages about groups."""

from typing import Final

TEXTS: Final[dict[str, tuple[str, str]]] = {}
