import sys

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.disk.row_texts import RowTexts


def text_of(name: str, value: object) -> bytes:
    return msgspec.json.encode({name: {"name": name, "value": value}})[1:-1]


def test_texts_are_joined_in_the_order_in_which_names_were_first_put() -> None:
    rows = RowTexts()
    for name in ("b", "a", "c"):
        rows.put(name, text_of(name, 1))
    rows.put("b", text_of("b", 2))
    rows.forget("a")
    rows.forget("never put")
    assert rows.joined(b",") == text_of("b", 2) + b"," + text_of("c", 1)
    assert len(rows) == 2
    rows.clear()
    assert rows.joined(b",") == b"" and len(rows) == 0


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.lists(st.text()))))
def test_texts_are_kept_exactly(values: dict[str, object]) -> None:
    rows = RowTexts()
    for name, value in values.items():
        rows.put(name, text_of(name, value))
    assert rows.joined(b"\n") == b"\n".join(text_of(name, value) for name, value in values.items())


def test_a_text_that_does_not_contain_its_name_is_kept_exactly() -> None:
    rows = RowTexts()
    rows.put("a", b'"b": 1')
    assert rows.joined(b"") == b'"b": 1'


def test_rows_that_differ_only_in_their_names_share_memory() -> None:
    rows = RowTexts()
    before = sys.getallocatedblocks()
    for number in range(10_000):
        rows.put(f"name-{number}", text_of(f"name-{number}", "x" * 300))
    names_and_rest = sys.getallocatedblocks() - before
    assert names_and_rest < 10_100, "one block a row, which is its name"


def test_values_that_no_row_uses_are_released() -> None:
    rows = RowTexts()
    rows.put("first", text_of("first", 0))
    before = sys.getallocatedblocks()
    for number in range(10_000):
        rows.put("first", text_of("first", number + 1000))
    assert sys.getallocatedblocks() - before < 1000
