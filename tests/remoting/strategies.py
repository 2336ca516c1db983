"""Hypothesis strategies for headers of declared classes and for commands."""

from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from pocketmq.remoting.header import CommandHeader, _kind, is_optional

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def _value(field: msgspec.structs.FieldInfo) -> st.SearchStrategy[Any]:
    kind = _kind(field.type)
    if kind is str:
        values: st.SearchStrategy[Any] = TEXT
    elif kind is bool:
        values = st.booleans()
    else:
        values = I32 if "-2147483648" in repr(field.type) else I64
    return st.none() | values if is_optional(field) else values


@cache
def headers(declared: type[CommandHeader]) -> st.SearchStrategy[CommandHeader]:
    fields = msgspec.structs.fields(declared)
    return st.builds(declared, **{field.name: _value(field) for field in fields})


EXT = st.dictionaries(TEXT, TEXT, max_size=6)
