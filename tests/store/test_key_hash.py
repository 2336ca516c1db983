import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.key_hash import as_key_hashes, joined, key_hashes, stretch_hashes


def hash_by_definition(text: str) -> int:
    value = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + low + 256 * high) & 0xFFFFFFFF
    if value >= 1 << 31:
        value -= 1 << 32
    return 0 if value == -(1 << 31) else abs(value)


# Small batches are hashed key by key, larger ones with numpy: both must give the same hashes.
@pytest.mark.parametrize("batch_size", [1, 10, 11, 50])
@settings(deadline=None)
@given(st.text(min_size=1))
def test_keys_are_hashed_as_java_does(batch_size: int, key: str) -> None:
    keys = [f"{key}{index}" if index else key for index in range(batch_size)]
    assert key_hashes(keys) == [hash_by_definition(each) for each in keys]


@settings(deadline=None)
@given(
    st.text("topic-01"),
    st.lists(st.text(st.characters(codec="ascii"), min_size=1) | st.sampled_from(["é", "x" * 128, "x" * 129])),
)
def test_stretches_of_a_text_are_hashed_as_java_does(topic: str, keys: list[str]) -> None:
    text = b"\x02" * 8 + b"\x02".join(key.encode() for key in keys) + b"\x02" * 8
    sizes = np.array([len(key.encode()) for key in keys], np.int64)
    begins = 8 + np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes + 1)))[: len(keys)]
    hashes, elsewhere = stretch_hashes(np.frombuffer(text, np.uint8), begins, begins + sizes)
    assert elsewhere.tolist() == [not key.isascii() or len(key) > 128 for key in keys]
    prefixes = np.full(len(keys), java_hash(topic) & 0xFFFFFFFF, np.uint32)
    found = as_key_hashes(joined(prefixes, hashes, sizes)).tolist()
    for key, own, odd in zip(keys, found, elsewhere.tolist(), strict=True):
        assert odd or own == hash_by_definition(topic + key)


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
