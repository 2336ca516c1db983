import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.filter.expression_filter import ExpressionError, ExpressionFilter
from pocketmq.store.format.properties import decode_properties, encode_properties, entries_from
from tests.broker.compiling import SIZE_MAX, compile_expression
from tests.golden.sql92_corpus import our_verdicts, read_golden


def is_wanted(text: str, properties: dict[str, str]) -> bool:
    return ExpressionFilter(compile_expression(text)).judge([entries_from(encode_properties(properties).encode())])[0]


def test_results_equal_apache_s():
    messages, verdicts = read_golden()
    assert len(verdicts) >= 2000 and len(messages) >= 20
    seen = set("".join(verdicts.values()))
    assert seen == set("TFNEX")
    wrong = {}
    for text, apache in verdicts.items():
        ours = our_verdicts(text, messages)
        if ours != re.sub("[NE]", "-", apache):
            wrong[text] = (apache, ours)
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a >", "ends too early"),
        ("(a = 1", "ends too early"),
        ("", "ends too early"),
        ("a = 1 AND > 2", "character 11, '> 2' is not expected"),
        ("a = 1 #", "character 7, '#': no valid token"),
        ("a = 'open", "character 5"),
        ("a > 'text'", "'text' cannot be compared by >"),
        ("a = NULL", "use IS NULL"),
        ("TRUE = 5", "TRUE cannot be compared with 5"),
        ("a BETWEEN 2 AND 1", "the first must not be greater"),
        ("5 IN ('5')", "IN needs a property, not 5"),
        ("'text'", "'text' is not a condition"),
        ("a = 9223372036854775808", "9223372036854775808 is above"),
        ("a = 1e999", "1e999 is not within"),
        ("a = 0.0", "0.0 is not within"),  # Apache treats it as below Double.MIN_VALUE
        ("a = '" + "x" * SIZE_MAX + "'", f"has {SIZE_MAX + 6} characters, the limit is {SIZE_MAX}"),
    ],
)
def test_invalid_expression_is_refused_with_position_and_reason(text, said):
    with pytest.raises(ExpressionError) as raised:
        compile_expression(text)
    assert said in str(raised.value)


def test_expressions_may_be_nested():
    deep = "(" * 400 + "a = 1" + ")" * 400
    assert is_wanted(deep, {"a": "1"})
    nested = "a = 1"
    for number in range(60):
        nested = f"NOT (b = {number} {'AND' if number % 2 else 'OR'} {nested})"
    assert is_wanted(nested, {"a": "1", "b": "x"}) is False
    chain = " OR ".join(f"k{number} = '{number}'" for number in range(300))
    assert is_wanted(chain, {"k299": "299"})
    with pytest.raises(ExpressionError, match="nested"):
        compile_expression("(b AND " * 450 + "a" + ")" * 450)


def test_broker_without_sql_does_not_import_the_parser():
    code = "import sys, broker.broker; sys.exit(not {'lark', 'pocketmq.broker.filter.expression'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_and_strings_cannot_inject_code():
    """Python code is generated from an expression: no part of it may escape its quotes."""
    text = "__import__ = '\"; raise SystemExit #\\' AND $get = 'v\nimport os' AND None = '{0}'"
    names = {"__import__": '"; raise SystemExit #\\', "$get": "v\nimport os", "None": "{0}"}
    assert is_wanted(text, names)
    assert not is_wanted(text, names | {"None": "0"})


ENTRY = st.sampled_from(
    ["a", "a\x01", "a\x01x", "a\x01y", "a\x01x\x01", "b\x01x", "b", "", "\x01a\x01x", "ba\x01x", "a\x01xa"]
)


@given(st.lists(st.lists(ENTRY, max_size=4).map("\x02".join), max_size=5))
def test_odd_property_strings_are_evaluated_as_they_are_decoded(texts):
    """Property names that occur twice, without a value, or not at all."""
    run = [entries_from(text.encode()) for text in texts]
    values = [decode_properties(text).get("a") for text in texts]
    for text, is_true in {
        "a = 'x'": lambda value: value == "x",
        "a <> 'x'": lambda value: value is not None and value != "x",
        "NOT (a <> 'x' OR a IS NULL)": lambda value: value == "x",
        "a = 'x' OR a IS NULL": lambda value: value in ("x", None),
        "a IS NULL": lambda value: value is None,
        "a IS NOT NULL AND a = a": lambda value: value is not None,
        "a = 'x\x02'": lambda value: False,
        "a IN ('y', 'x\x01')": lambda value: value in ("y", "x\x01"),
    }.items():
        assert compile_expression(text)(run) == [is_true(value) for value in values], text


@pytest.mark.parametrize(
    ("text", "value", "is_true"),
    [
        ("a = '\ufffd'", b"\xff", True),  # invalid bytes are decoded as Java does
        ("a IN ('x', '\ufffd')", b"\xff", True),
        ("a = 'é'", "é".encode(), True),
        ("a = 'é'", b"\xe9", False),
        ("a CONTAINS 'é'", b"\xc3\xc3\xa9", True),
        ("a CONTAINS '\ufffd'", b"\xc3\xc3\xa9", True),
        ("a > 4 AND a < 6", "٥".encode(), True),
        ("a > 4", b"5\xff", False),
    ],
)
def test_property_values_are_decoded_as_utf_8(text, value, is_true):
    assert ExpressionFilter(compile_expression(text)).judge([entries_from(b"a\x01" + value)]) == [is_true]
