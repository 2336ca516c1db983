import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.key_hash import key_hashes


def hash_by_definition(text: str) -> int:
    value = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + low + 256 * high) & 0xFFFFFFFF
    if value >= 1 << 31:
        value -= 1 << 32
    return 0 if value == -(1 << 31) else abs(value)


# Singly and in numpy: the two ways must agree.
@pytest.mark.parametrize("batch_size", [1, 10, 11, 50])
@settings(deadline=None)
@given(st.text(min_size=1))
def test_keys_are_hashed_as_java_does(batch_size: int, key: str) -> None:
    keys = [f"{key}{index}" if index else key for index in range(batch_size)]
    assert key_hashes(keys) == [hash_by_definition(each) for each in keys]


def test_known_hashes_of_java() -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE, which has no absolute value; "AaAa" and "BBBB" collide.
    keys = ["polygenelubricants", "TagA", "AaAa", "BBBB", "中文😀"]
    expected = [0, 2598919, 2031744, 2031744, hash_by_definition("中文😀")]
    assert key_hashes(keys) == expected
    assert [key_hashes([key])[0] for key in keys] == expected


def test_keys_longer_than_the_tables() -> None:
    keys = ["k" * 30_000, "a", "x" * 129, "中" * 9_000]
    for batch in ([keys[0]], [keys[2]], keys, [keys[0], *keys[1:3], "b"]):
        assert key_hashes(batch) == [hash_by_definition(key) for key in batch]
