import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.format.java_hash import java_hash, tags_code


def plain_java_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (value * 31 + int.from_bytes(data[position : position + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize(
    "text, code",
    # From Java: a tag of the golden stores, the pair that collides, and the string whose hash is Integer.MIN_VALUE.
    [("", 0), ("TagA", 2598919), ("AaAa", 2031744), ("BBBB", 2031744), ("polygenelubricants", -(2**31))],
)
def test_known_hash_codes(text: str, code: int) -> None:
    assert java_hash(text) == code


@given(st.one_of(st.text(), st.text("abc", min_size=40, max_size=60), st.text("xü\U0001f600", min_size=1000, max_size=2100)))
def test_hash_equals_that_of_java(text: str) -> None:
    assert java_hash(text) == plain_java_hash(text)


def test_tags_code_of_an_empty_tag_is_zero() -> None:
    assert tags_code("") == 0
    assert tags_code("TagA") == tags_code("TagA") == 2598919
