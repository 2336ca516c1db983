import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.properties import decode_properties, encode_properties, property_value

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=10)


@given(st.dictionaries(TEXT, TEXT, max_size=6))
def test_properties_come_back(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text.encode()) == properties
    assert decode_properties(text + "\x02") == properties
    for name, value in properties.items():
        assert property_value(text.encode(), name.encode()) == value.encode()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", {}),
        ("\x02\x02", {}),
        ("TAGS\x01", {}),
        ("\x01value", {}),
        ("name", {}),
        ("a\x01b\x01c\x02d\x01e", {"d": "e"}),
        ("a\x011\x02a\x012", {"a": "2"}),
    ],
)
def test_entries_that_java_drops_are_dropped(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected


def test_property_value_is_not_fooled_by_the_end_of_another_name() -> None:
    assert property_value(b"MYKEYS\x01a\x02KEYS\x01b", b"KEYS") == b"b"
    assert property_value(b"MYKEYS\x01a", b"KEYS") is None
