"""Code generator of SQL92 expressions: from a tree to a Python function that judges a run of messages.

    price > 10 AND region = 'eu' AND NOT (vip IS NULL OR vip = 'no')

becomes one function, and a further one for each nested chain of AND or OR, and for parts of a long one:

    def judge(run):                             def f1(p):
        verdicts = []                               is_open = False
        say = verdicts.append                       v = (the value of vip)
        for p in run:                               if v is None:
            try:                                        return True
                v = (the value of price)            ...
                if v is None:                       if is_open:
                    say(False); continue                return None
                elif not (integer(v) > 10):         return False
                    say(False); continue
                ...
                say(True)
            except ValueError:
                say(False)
        return verdicts

A condition is true, false or open (None). Terms are evaluated in order, and the first that decides ends the chain: an error
in a later term is not noticed, as in Apache's evaluator. The code is flat, so that an expression may nest as deep as Python
calls.

For the outermost condition open and error both mean that the message is not wanted. Therefore an AND ends there at its first
open term.

A value is cut out of the property string only when a term needs it, because decoding all properties first would be slower.
Testing whether a property is present is much cheaper than reading its value, and comes first where it can decide.

An expression with more than `SEARCHES_MAX` references to properties is compiled to a function that decodes the properties of
each record once, into a dict `p`. Otherwise its cost would be the product of both lengths, which peers choose.
"""

from collections.abc import Generator
from functools import lru_cache
from typing import Any, Final

from pocketmq.broker.filter import java_values
from pocketmq.broker.filter.expression import (
    Among,
    And,
    Comparison,
    Literal,
    Negative,
    Node,
    Not,
    Or,
    Property,
    TextTest,
    Truth,
)
from pocketmq.broker.filter.java_values import Long, Value
from pocketmq.store.format.properties import (
    PROPERTY_SEPARATOR,
    as_entry,
    decode_properties,
    mark_of,
    text_of,
    value_before_empty,
)
from pocketmq.store.queue.record_filter import Judge

SEARCHES_MAX: Final = 16
"""Maximum references to properties of an expression that searches the property string for each."""
TERMS_MAX: Final = 16
"""Maximum terms of a chain in one function; a longer chain becomes a chain of functions, each compiled in a step."""
_REFUSED: Final = "say(False); continue"
_SWAPPED: Final = {"=": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TESTS: Final = {"CONTAINS": "{search} in v", "STARTSWITH": "v.startswith({search})", "ENDSWITH": "v.endswith({search})"}
_INTEGER: Final = "(int(v) if len(v) < {digits} and v.isdecimal() else {convert}(text_of(v)))"
_DOUBLE: Final = "(float(v) if len(v) < 20 and v.replace('.', '', 1).isdecimal() else near_double(text_of(v)))"


def function_steps(tree: Node) -> Generator[None, None, Judge]:
    """Write and compile the function of a parsed expression. Raises RecursionError for one that is nested too deep."""
    searching = _Writer(is_indexed=False)
    lines = searching.lines(tree)
    if searching.references <= SEARCHES_MAX:
        return (yield from searching.function(lines))
    yield
    indexing = _Writer(is_indexed=True)
    return (yield from indexing.function(indexing.lines(tree)))


_decoded = lru_cache(maxsize=8)(text_of)


def decoded(value: str) -> str:
    """Return the text of a property's value. The last ones are kept, because many terms may read one long value."""
    return value if value.isascii() else _decoded(value)


def text_or_none(value: str | None) -> str | None:
    """Return a property's value as an operand."""
    return None if value is None else decoded(value)


def near_double(text: str) -> float:
    """Convert text to a double for comparison with a constant. NaN becomes infinite: both are above every constant."""
    value = java_values.double(text)
    return value if value == value else float("inf")


class _Writer:
    """Writes the source of a function; `_names` holds the globals that the source refers to."""

    def __init__(self, *, is_indexed: bool) -> None:
        """`is_indexed`: the function looks properties up in a dict; else it searches the property string."""
        self.references = 0
        """Number of references to properties in the source."""
        self._is_indexed = is_indexed
        self._functions: list[str] = []
        """Sources of the functions that `judge` calls, in the order of their definition."""
        self._names: dict[str, Any] = {
            "integer": java_values.integer, "long_integer": java_values.long_integer, "near_double": near_double,
            "equal": java_values.equal, "order": java_values.order, "negate": java_values.negate, "Long": Long,
            "text_of": decoded, "text_or_none": text_or_none, "before_empty": value_before_empty, "index": decode_properties,
        }  # fmt: skip
        self._count = 0

    def lines(self, tree: Node) -> list[str]:
        """Return the lines that judge one record."""
        return self._body(tree, "say(True); continue", _REFUSED, _REFUSED)

    def function(self, lines: list[str]) -> Generator[None, None, Judge]:
        """Compile the function that judges a run by `lines`; one function a step."""
        run = "map(index, run)" if self._is_indexed else "run"
        judging = [
            "def judge(run):", " verdicts = []", " say = verdicts.append", f" for p in {run}:",
            "  try:", *(f"   {line}" for line in lines), "  except ValueError:", "   say(False)", " return verdicts",
        ]  # fmt: skip
        for source in self._functions:
            exec(compile(source, "<SQL92>", "exec"), self._names)  # noqa: S102
            yield
        exec(compile("\n".join(judging), "<SQL92>", "exec"), self._names)  # noqa: S102
        judge: Judge = self._names["judge"]
        return judge

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _define(self, node: Node) -> str:
        """Write a function for a nested condition and return its name."""
        name = self._name("f")
        lines = self._body(node, "return True", "return False", "return None")
        self._functions.append("\n".join([f"def {name}(p):", *(f" {line}" for line in lines)]))
        return name

    def _body(self, node: Node, if_true: str, if_false: str, if_none: str) -> list[str]:
        """Return the lines that evaluate a condition and run the statement for its result."""
        if not isinstance(node, And | Or):
            return self._term(node, if_true, if_false, if_none)
        is_and = isinstance(node, And)
        if len(node.terms) > TERMS_MAX:
            kind, terms = type(node), node.terms
            node = kind(tuple(kind(terms[start : start + TERMS_MAX]) for start in range(0, len(terms), TERMS_MAX)))
        on_true, on_false = ("pass", if_false) if is_and else (if_true, "pass")
        other = if_true if is_and else if_false
        if if_none == if_false:
            return [line for term in node.terms for line in self._term(term, on_true, on_false, on_false)] + [other]
        lines = ["is_open = False"]
        for term in node.terms:
            lines += self._term(term, on_true, on_false, "is_open = True")
        return [*lines, "if is_open:", f" {if_none}", other]

    def _term(self, node: Node, on_true: str, on_false: str, on_none: str) -> list[str]:
        """Return the lines that evaluate one term and run the statement for its result."""
        while isinstance(node, Not):
            node, on_true, on_false = node.operand, on_false, on_true
        if isinstance(node, Literal):
            return [on_none if node.value is None else on_true if node.value else on_false]
        if isinstance(node, Truth):
            return _branches(self._presence(node.operand), on_false, on_none)
        if isinstance(node, Among):
            values = self._name("s")
            raw = [_raw(value) for value in node.values]
            self._names[values] = node.values if None in raw else frozenset(raw)
            found = f"text_of(v) in {values}" if None in raw else f"v in {values}"
            return self._property(node.operand, found, on_true, on_false, on_none)
        if isinstance(node, TextTest):
            return self._text_test(node, on_true, on_false)
        if isinstance(node, Comparison):
            return self._comparison(node, on_true, on_false, on_none)
        return _three(f"{self._define(node)}(p)", on_true, on_false, on_none)

    def _property(self, operand: Property, test: str, on_true: str, on_false: str, on_none: str) -> list[str]:
        """Return the lines that test a property's value `v`; `on_none` is for a missing property."""
        lines = [f"v = {self._value(operand)}", "if v is None:", f" {on_none}"]
        if on_false == "pass":
            return [*lines, f"elif {test}:", f" {on_true}"]
        lines += [f"elif not ({test}):", f" {on_false}"]
        return lines if on_true == "pass" else [*lines, "else:", f" {on_true}"]

    def _is_text(self, operand: Property, raw: str, on_true: str, on_false: str, on_none: str) -> list[str]:
        """Return the lines that test whether a property's value is `raw`; `on_none` is for a missing property."""
        if self._is_indexed:
            return self._property(operand, f"v == {raw!r}", on_true, on_false, on_none)
        mark = mark_of(operand.name)
        # Searching for the whole entry is enough when the message has only one entry of that name.
        is_last = f"(p.count({mark!r}) == 1 or {self._value(operand)} == {raw!r})"
        lines = [f"if {mark + raw + PROPERTY_SEPARATOR!r} in p and {is_last}:", f" {on_true}"]
        if on_false == on_none:
            return [*lines, "else:", f" {on_false}"]
        return [*lines, f"elif {self._presence(operand)}:", f" {on_false}", "else:", f" {on_none}"]

    def _text_test(self, node: TextTest, on_true: str, on_false: str) -> list[str]:
        """Return the lines of a text test. A missing or non-text operand and an empty search fail it and its negation."""
        if not node.search:
            return [on_false]
        passed, failed = (on_false, on_true) if node.is_negated else (on_true, on_false)
        test = _TESTS[node.word].format(search=repr(node.search))
        return [
            f"v = {self._operand(node.operand)}", "if not isinstance(v, str):", f" {on_false}",
            f"elif {test}:", f" {passed}", "else:", f" {failed}",
        ]  # fmt: skip

    def _comparison(self, node: Comparison, on_true: str, on_false: str, on_none: str) -> list[str]:
        left, operator, right = node.left, node.operator, node.right
        if isinstance(left, Property) and isinstance(right, Literal) and right.value is None:
            return _branches(self._presence(left), on_false, on_true)
        # A constant on the left is compared like one on the right, except when the property is missing.
        if isinstance(left, Property):
            value = _constant(right)
            if operator == "=" and isinstance(value, str) and (raw := _raw(value)) and PROPERTY_SEPARATOR not in raw:
                return self._is_text(left, raw, on_true, on_false, on_none)
            test = _property_test("==" if operator == "=" else operator, value)
            if test:
                return self._property(left, test, on_true, on_false, on_none)
        if isinstance(right, Property) and not isinstance(_constant(left), bool):
            test = _property_test(_SWAPPED[operator], _constant(left))
            if test:
                return self._property(right, test, on_true, on_false, on_false if operator == "=" else on_none)
        if operator == "=":
            return _three(f"equal({self._operand(left)}, {self._operand(right)})", on_true, on_false, on_none)
        # When the left operand is None, the right one is not evaluated; it could be an error.
        return [
            f"v = {self._operand(left)}", f"t = None if v is None else order(v, {self._operand(right)})",
            "if t is None:", f" {on_none}", f"elif t {operator} 0:", f" {on_true}", "else:", f" {on_false}",
        ]  # fmt: skip

    def _operand(self, node: Node) -> str:
        """Return a Python expression for the value of an operand."""
        if isinstance(node, Property):
            return f"text_or_none({self._value(node)})"
        if isinstance(node, Literal):
            return _source(node.value)
        if isinstance(node, Negative):
            inner = _unsigned(node)
            if isinstance(inner, Property | Literal):
                return _source(_constant(node))
            return f"negate({self._operand(inner)})"
        return f"{self._define(node)}(p)"

    def _value(self, operand: Property) -> str:
        """Return a Python expression for a property's stored value: a look-up, or `properties.value_of`, inlined."""
        self.references += 1
        if self._is_indexed:
            return f"p.get({as_entry(operand.name)!r})"
        mark = mark_of(operand.name)
        return f"(p.rpartition({mark!r})[2].partition('\\x02')[0] or before_empty(p, {mark!r}))"

    def _presence(self, operand: Property) -> str:
        """Return a Python expression for whether a property has a value."""
        self.references += 1
        if self._is_indexed:
            return f"({as_entry(operand.name)!r} in p)"
        mark = mark_of(operand.name)
        return f"({mark!r} in p and ({mark + PROPERTY_SEPARATOR!r} not in p or before_empty(p, {mark!r}) is not None))"


def _raw(text: str) -> str | None:
    """Return the only stored form of a text value, or None if other stored forms decode to the same text."""
    raw = as_entry(text)
    return raw if "\ufffd" not in text and text_of(raw) == text else None


def _branches(test: str, on_true: str, on_false: str) -> list[str]:
    return [f"if {test}:", f" {on_true}", "else:", f" {on_false}"]


def _three(condition: str, on_true: str, on_false: str, on_none: str) -> list[str]:
    return [f"t = {condition}", "if t is None:", f" {on_none}", "elif t:", f" {on_true}", "else:", f" {on_false}"]


def _unsigned(node: Node) -> Node:
    while isinstance(node, Negative):
        node = node.operand
    return node


def _constant(node: Node) -> Value:
    """Return the value of a constant node, None for other nodes. (The negative of a property, which is text, is None.)"""
    sign_changes = 0
    while isinstance(node, Negative):
        node, sign_changes = node.operand, sign_changes + 1
    if not isinstance(node, Literal):
        return None
    value = node.value
    for _ in range(sign_changes):
        value = java_values.negate(value)
    return value


def _source(value: Value) -> str:
    return f"Long({value})" if isinstance(value, Long) else repr(value)


def _property_test(operator: str, value: Value) -> str | None:
    """Return the test of a property's value `v` against a constant; None where the general comparison is needed."""
    if value is None:
        return None
    if isinstance(value, str):
        raw = _raw(value)
        return None if operator != "==" else f"text_of(v) == {value!r}" if raw is None else f"v == {raw!r}"
    if isinstance(value, bool):
        return f"(len(v) == 4 and v.lower() == 'true') == {value}" if operator == "==" else None
    if isinstance(value, float):
        return f"{_DOUBLE} {operator} {value!r}"
    digits, convert = (19, "long_integer") if isinstance(value, Long) else (10, "integer")
    return f"{_INTEGER.format(digits=digits, convert=convert)} {operator} {int(value)}"
