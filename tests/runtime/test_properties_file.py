"""Java's `.properties` format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.runtime import properties_file

TABLE = [
    ("a=1\nb = 2\nc:3\nd : 4\ne 5\nf\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": ""}),
    ("  # comment\n! too\n\n\t a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=1  \nb=  x y \t", {"a": "1  ", "b": "x y \t"}),
    ("path=a\\\n   b\\\n\tc\nnext=1", {"path": "abc", "next": "1"}),
    ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
    ("a=x\\", {"a": "x"}),
    ("a=\\\n\nb=1", {"a": "", "b": "1"}),
    ("a\\ b\\=c=d", {"a b=c": "d"}),
    ("a=\\t\\n\\r\\f\\q\\:\\u0041\\ud83d\\ude00", {"a": "\t\n\r\fq:A😀"}),
    ("url=http://h:1/?a=b#c", {"url": "http://h:1/?a=b#c"}),
    ("a=1\na=2", {"a": "2"}),
    ("a==1\nb:=2\nc= =3", {"a": "=1", "b": "=2", "c": "=3"}),
    ("=x", {"": "x"}),
    ("", {}),
]


@pytest.mark.parametrize(("text", "properties"), TABLE)
def test_parses_like_java(text, properties):
    assert properties_file.loads(text) == properties


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT, TEXT))
def test_dumped_text_is_read_back(properties):
    assert properties_file.loads(properties_file.dumps(properties)) == properties


@given(st.dictionaries(TEXT, TEXT), st.dictionaries(TEXT, TEXT))
def test_edit_changes_the_given_keys_only(before, changes):
    text = properties_file.edited("# first\n" + properties_file.dumps(before), changes)
    assert properties_file.loads(text) == before | changes
    assert text.startswith("# first\n")


def test_editing_keeps_comments_and_order():
    text = "# why\na = 1\nlong = x\\\n  y\n\nb=2\na=3"
    assert properties_file.edited(text, {"a": "9", "long": "z", "new": "n"}) == "# why\nlong=z\n\nb=2\na=9\nnew=n\n"
    assert properties_file.edited("", {"a": "1"}) == "a=1\n"


def test_error_of_an_invalid_escape_has_the_line_number(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("# c\n\na=1\nb=\\\nc\\u12G4\n")
    with pytest.raises(ValueError, match="line 4: .*four hexadecimal digits"):
        properties_file.load(path)


@pytest.mark.parametrize(("data", "value"), [("é".encode(), "é"), ("é".encode("latin-1"), "é"), (b"\xef\xbb\xbfx", "x")])
def test_files_of_any_encoding(tmp_path, data, value):
    path = tmp_path / "f"
    path.write_bytes((b"" if value == "x" else b"a=") + data + (b"=1" if value == "x" else b""))
    assert properties_file.load(path) == ({"x": "1"} if value == "x" else {"a": value})


def test_continued_line_that_is_empty_or_starts_with_hash_is_an_entry() -> None:
    text = "\\\n\n\\\n#b=1\nc=2\n"
    assert properties_file.loads(text) == {"": "", "#b": "1", "c": "2"}
    changed = properties_file.edited(text, {"c": "3", "#b": "4"})
    assert properties_file.loads(changed) == {"": "", "#b": "4", "c": "3"}
