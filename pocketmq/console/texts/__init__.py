"""Texts of the console in English and Chinese, by key. Each module here has the texts of one family of pages.

    TEXTS = {"topics.title": ("Topics", "主题"), ...}

A text may have values in braces, such as `{name}`. Templates get texts by `t("KEY", name=...)`, Python by `view.text`.
Texts `done.NAME` say what an action did.
"""

import importlib
from collections.abc import Iterator
from typing import Final

from markupsafe import Markup

LANGUAGES: Final = {"en": "English", "zh": "中文"}
_FAMILIES: Final = ("frame", "cluster", "topics", "groups", "messages", "delayed", "access", "charts")
_ORDER: Final = tuple(LANGUAGES)


def _all() -> Iterator[tuple[str, tuple[str, str]]]:
    for family in _FAMILIES:
        yield from importlib.import_module(f"{__name__}.{family}").TEXTS.items()


_TEXTS: Final[dict[str, tuple[str, str]]] = dict(_all())
KEYS: Final = frozenset(_TEXTS)


def text(language: str, key: str, /, **values: object) -> str:
    """Return a text. Raises KeyError for a key that no module has."""
    found = _TEXTS[key][_ORDER.index(language)]
    if any(isinstance(value, Markup) for value in values.values()):
        return Markup(found).format_map(values)  # which escapes the other values
    return found.format_map(values) if values else found


def language_of(chosen: str | None, accepted: str) -> str:
    """Return the language of a browser: the one that its user chose, or the first that its Accept-Language has of ours."""
    if chosen in LANGUAGES:
        return chosen
    wanted = sorted(map(_weighted, accepted.split(",")[:20]), key=lambda item: -item[1])
    return next((language for language, _ in wanted if language in LANGUAGES), _ORDER[0])


def _weighted(item: str) -> tuple[str, float]:
    """Return the language of an item of Accept-Language without its country, and its weight."""
    tag, _, weight = item.partition(";q=")
    try:
        return tag.strip().lower().partition("-")[0], float(weight or 1)
    except ValueError:
        return "", 0.0
