"""Texts: both languages say the same, and templates use no other keys."""

import re
from pathlib import Path
from string import Formatter

import pytest

import pocketmq.console
from pocketmq.console import texts

FOLDER = Path(pocketmq.console.__file__).parent
FAMILIES = {key.partition(".")[0] for key in texts.KEYS}


def names(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("key", sorted(texts.KEYS))
def test_a_text_has_the_same_values_in_both_languages(key):
    english, chinese = (texts._TEXTS[key][number] for number in range(2))
    assert english and chinese
    assert names(english) == names(chinese)


def test_families_do_not_share_keys():
    families = [__import__(f"pocketmq.console.texts.{name}", fromlist=["TEXTS"]).TEXTS for name in texts._FAMILIES]
    assert sum(map(len, families)) == len(texts.KEYS)


def used() -> set[str]:
    """Return the keys in templates and modules."""
    found = set()
    for path in [*FOLDER.glob("templates/*.html"), *FOLDER.glob("**/*.py")]:
        if path.parent.name != "texts":
            quoted = re.findall(r'"([a-z_]+\.[a-z_0-9]+)"', path.read_text())
            found.update(key for key in quoted if key.partition(".")[0] in FAMILIES and not key.endswith((".html", "_")))
            found.update(f"done.{name}" for name in re.findall(r'redirect\("[^"]+", "(\w+)"', path.read_text()))
    return found


def test_templates_and_modules_use_only_known_keys():
    assert used() - texts.KEYS == set()


def test_each_text_is_used():
    made_of = ("charts.", "message.event_", "message.form_", "message.track_", "delayed.unit_")
    made = {key for key in texts.KEYS if key.startswith(made_of)}
    assert texts.KEYS - used() - made == set()
