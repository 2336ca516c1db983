"""Texts of the pages about charts."""

from typing import Final

TEXTS: Final[dict[str, tuple[str, str]]] = {}
