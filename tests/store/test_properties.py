import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.format.properties import (
    decode_properties,
    encode_properties,
    entries_from,
    is_odd,
    mark_of,
    text_of,
    value_of,
)

TEXT = st.text(st.characters(exclude_characters="\0\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=10)


@given(st.dictionaries(TEXT, TEXT, max_size=6))
def test_properties_survive_a_round_trip(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text.encode()) == properties
    assert decode_properties(text + "\x02") == properties
    for name, value in properties.items():
        assert text_of(value_of(entries_from(text.encode()), mark_of(name))) == value


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", {}),
        ("\x02\x02", {}),
        ("TAGS\x01", {}),
        ("\x01value", {}),
        ("name", {}),
        ("\x01a\x01b", {}),
        ("a\x01b\x01c\x02d\x01e", {"a": "b\x01c", "d": "e"}),
        ("a\x011\x02a\x012", {"a": "2"}),
    ],
)
def test_entries_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected


WILD = st.text("ab\0\x01\x02", max_size=3)


@given(st.dictionaries(WILD, WILD, max_size=4))
def test_encoded_properties_are_never_odd(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert "\0" not in text and not is_odd(text, decode_properties(text))
    plain = {
        name: value
        for name, value in properties.items()
        if name and value and not {*name} & {*"\0\x01\x02"} | {*value} & {*"\0\x02"}
    }
    assert plain.items() <= decode_properties(text).items()


@pytest.mark.parametrize("text", ["a", "a\x01", "\x01b", "a\x01b\x02c", "a\x01b\x02\x02", "\x01a\x01b", "a\x01b\x02a\x01c"])
def test_odd_strings_are_recognised(text: str) -> None:
    assert is_odd(text, decode_properties(text))


@pytest.mark.parametrize("text", ["", "a\x01b", "a\x01b\x02", "a\x01b\x02c\x01d", "a\x01b\x01c"])
def test_plain_strings_are_not_odd(text: str) -> None:
    assert not is_odd(text, decode_properties(text))


@given(st.lists(st.sampled_from(["a", "b", "\x01", "\x02", "a\x01", "\x02a\x01"])).map("".join))
def test_reading_one_property_equals_decoding_all(text: str) -> None:
    everything = decode_properties(text)
    for name in ("a", "b", "aa"):
        value = value_of(entries_from(text.encode()), mark_of(name))
        assert (None if value is None else text_of(value)) == everything.get(name)
