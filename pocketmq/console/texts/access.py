"""Texts of the pages about access."""

from typing import Final

TEXTS: Final[dict[str, tuple[str, str]]] = {}
