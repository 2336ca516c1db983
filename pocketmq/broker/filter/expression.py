"""Parser of SQL92 expressions: from text to a tree.

The grammar is that of Apache's SelectorParser, with the operators of 5.x (CONTAINS, STARTSWITH, ENDSWITH). Two oddities of
that parser are kept. It stops at the first token that does not continue a complete expression, and ignores the rest (`a = 1
b` is `a = 1`, `a = 007` is `a = 0`). Operators accept or refuse an operand by its kind: a constant, a property, a boolean
expression, or a negation, which is a kind of its own.
"""

import re
from collections.abc import Generator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.broker.filter.expression_filter import ExpressionError
from pocketmq.broker.filter.java_values import INTEGER_MAX, LONG_MAX, Long, Value, order
from pocketmq.runtime.peer_text import clipped

if TYPE_CHECKING:
    from lark import Lark

OPERATORS_MAX: Final = 600
"""Maximum of operators and keywords: each becomes lines of code, and compiling takes far longer than parsing."""
DEPTH_MAX: Final = 400
"""Maximum depth of nested parentheses."""
STEP_TOKENS: Final = 128
"""Number of tokens parsed in one step."""

_DOUBLE_MAX: Final = 1.7976931348623157e308

_GRAMMAR: Final = r"""
?start: disjunction
?disjunction: conjunction
    | conjunction ("OR"i conjunction)+                           -> either
?conjunction: equality
    | equality ("AND"i equality)+                                -> both
?equality: comparison
    | equality "=" comparison                                    -> equal
    | equality "<>" comparison                                   -> unequal
    | equality "IS"i "NULL"i                                     -> null
    | equality "IS"i "NOT"i "NULL"i                              -> not_null
?comparison: unary
    | comparison inequality_sign unary                           -> inequality
    | comparison "BETWEEN"i unary "AND"i unary                   -> between
    | comparison "NOT"i "BETWEEN"i unary "AND"i unary            -> not_between
    | comparison "IN"i "(" STRING ("," STRING)* ")"              -> among
    | comparison "NOT"i "IN"i "(" STRING ("," STRING)* ")"       -> not_among
    | comparison text_word STRING                                -> text_test
    | comparison "NOT"i text_word STRING                         -> not_text_test
?unary: primary
    | "+" unary
    | "-" unary                                                  -> negative
    | "NOT"i unary                                               -> negation
?primary: STRING                                                 -> string
    | DECIMAL                                                    -> decimal
    | FLOATING                                                   -> floating
    | "TRUE"i                                                    -> true
    | "FALSE"i                                                   -> false
    | "NULL"i                                                    -> nothing
    | NAME                                                       -> name
    | "(" disjunction ")"
!inequality_sign: ">" | ">=" | "<" | "<="
!text_word: "CONTAINS"i | "STARTSWITH"i | "ENDSWITH"i

FLOATING.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
STRING: /'(?:''|[^'])*'/
NAME: /(?ai:[a-z_$][a-z0-9_$]*)/i
%ignore /[ \t\n\r\f]+/
"""


class Literal(msgspec.Struct, frozen=True):
    """A constant. TRUE, FALSE and NULL are boolean expressions, too."""

    value: Value


class Property(msgspec.Struct, frozen=True):
    """The value of a message's property, None if the message does not have it."""

    name: str


class Negative(msgspec.Struct, frozen=True):
    """A number with its sign changed; None for an operand that is not a number."""

    operand: "Node"


class Comparison(msgspec.Struct, frozen=True):
    """A comparison; `operator` is one of = < <= > >=. `x IS NULL` is = with NULL."""

    operator: str
    left: "Node"
    right: "Node"


class Among(msgspec.Struct, frozen=True):
    """The operator IN."""

    operand: Property
    values: frozenset[str]


class TextTest(msgspec.Struct, frozen=True):
    """CONTAINS, STARTSWITH or ENDSWITH. Without an operand or with an empty search it is false even if `is_negated`."""

    word: str
    operand: "Node"
    search: str
    is_negated: bool


class Not(msgspec.Struct, frozen=True):
    operand: "Node"


class And(msgspec.Struct, frozen=True):
    terms: tuple["Node", ...]


class Or(msgspec.Struct, frozen=True):
    terms: tuple["Node", ...]


class Truth(msgspec.Struct, frozen=True):
    """A property used as a condition: None if the message lacks it, else false, because its value is text."""

    operand: Property


Node = Literal | Property | Negative | Comparison | Among | TextTest | Not | And | Or | Truth
_CONDITIONS: Final = (Comparison, Among, TextTest, Not, And, Or, Truth)


def parsing(text: str) -> Generator[None, None, Node]:
    """Parse an expression, some tokens a step. The result is its tree, whose root is a condition. Raises ExpressionError."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    text = _without_comments(text)
    state: Any = _parser().parse_interactive(text)
    extra, count = None, 0
    operators = depth = 0
    try:
        for token in state.lexer_thread.lex(state.parser_state):
            extra = token
            depth += _DEPTHS.get(token.type, 0)
            operators += token.type not in _OPERANDS and token.type not in _DEPTHS
            _check(operators, depth)
            state.feed_token(token)
            extra = None
            count += 1
            if count % STEP_TOKENS == 0:
                yield
    except UnexpectedToken:
        pass  # the text before it may be a complete expression
    except UnexpectedCharacters as error:
        raise ExpressionError(f"{_place(text, error.pos_in_stream)}: no valid token begins here") from None
    try:
        tree: Node = state.feed_eof()
    except UnexpectedToken:
        end = f"the expression ends too early, after {text[-40:]!r}"
        where = f"{_place(text, extra.start_pos)} is not expected" if extra else end
        raise ExpressionError(where) from None
    return _condition(tree)


def _check(operators: int, depth: int) -> None:
    """Raises ExpressionError for more operators, or more nested parentheses, than allowed."""
    if depth > DEPTH_MAX:
        raise ExpressionError(f"more than {DEPTH_MAX} nested parentheses")
    if operators > OPERATORS_MAX:
        raise ExpressionError(f"more than {OPERATORS_MAX} operators and keywords")


_DEPTHS: Final = {"LPAR": 1, "RPAR": -1}
_OPERANDS: Final = frozenset(("STRING", "DECIMAL", "FLOATING", "NAME", "COMMA", "TRUE", "FALSE", "NULL"))


def _without_comments(text: str) -> str:
    """Return `text` with its comments replaced by blanks: `--` up to a required line end, and `/* */`.

    This is linear in the size of the text. The lexer would search for the end again from each possible begin of a comment.
    """
    if "--" not in text and "/*" not in text:
        return text
    line_end = max(text.rfind("\n"), text.rfind("\r"))
    block_end = text.rfind("*/")
    parts: list[str] = []
    start = position = 0
    while (found := _COMMENT_OR_STRING.search(text, position)) is not None:
        begin, word = found.start(), found[0]
        position = begin + len(word)
        if word == "'":
            end = text.find("'", position) + 1
            if not end:
                break
            position = end
            continue
        if word == "--" and begin < line_end:
            end = _LINE_END.search(text, position).start()  # type: ignore[union-attr]
        elif word == "/*" and position <= block_end:
            end = text.index("*/", position) + 2
        else:
            position = begin + 1
            continue
        parts += text[start:begin], " " * (end - begin)
        start = position = end
    return "".join((*parts, text[start:]))


_COMMENT_OR_STRING: Final = re.compile(r"'|--|/\*")
_LINE_END: Final = re.compile(r"[\n\r]")


def _place(text: str, position: int | None) -> str:
    start = position or 0
    return f"character {start + 1}, {text[start : start + 20]!r}"


@cache
def _parser() -> "Lark":
    """Create the parser at first use: it is expensive, and only brokers with SQL92 subscribers need it."""
    from lark import Lark

    # The basic lexer: keywords are reserved everywhere.
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder())


def _condition(node: Node) -> Node:
    """Return `node` as a boolean expression. Raises ExpressionError if it cannot be one."""
    if isinstance(node, _CONDITIONS) or (isinstance(node, Literal) and (node.value is None or isinstance(node.value, bool))):
        return node
    if isinstance(node, Property):
        return Truth(node)
    raise ExpressionError(f"{_shown(node)} is not a condition")


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(node: Node) -> str:
    if isinstance(node, Property):
        return clipped(node.name)
    if not isinstance(node, Literal):
        return f"the {type(node).__name__.lower()}"
    value = node.value
    return clipped("NULL" if value is None else str(value).upper() if isinstance(value, bool) else repr(value))


def _text(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _equality(left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, Literal) and node.value is None:
            raise ExpressionError("NULL cannot be compared: use IS NULL")
    if (
        isinstance(left, Literal)
        and isinstance(right, Literal)
        and isinstance(left.value, bool) > isinstance(right.value, bool)
    ):
        raise ExpressionError(f"{_shown(left)} cannot be compared with {_shown(right)}")
    return Comparison("=", left, right)


def _inequality(operator: str, left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, _CONDITIONS) or (isinstance(node, Literal) and not _is_number(node.value)):
            raise ExpressionError(f"{_shown(node)} cannot be compared by {operator}")
    return Comparison(operator, left, right)


def _within(value: Node, low: Node, high: Node) -> Node:
    if isinstance(low, Literal) and isinstance(high, Literal) and _is_number(low.value) and _is_number(high.value):
        ordered = order(low.value, high.value)
        if ordered is not None and ordered > 0:
            raise ExpressionError(f"BETWEEN {_shown(low)} AND {_shown(high)}: the first must not be greater")
    return And((_inequality(">=", value, low), _inequality("<=", value, high)))


def _among(operand: Node, *texts: str) -> Among:
    if not isinstance(operand, Property):
        raise ExpressionError(f"IN needs a property, not {_shown(operand)}")
    return Among(operand, frozenset(map(_text, texts)))


def _joined(kind: type[And] | type[Or], first: Node, *others: Node) -> Node:
    """Join a chain in one node: `a AND b AND c` has three terms."""
    first = _condition(first)
    terms = first.terms if isinstance(first, kind) else (first,)
    return kind((*terms, *map(_condition, others)))


def _decimal(text: str) -> Literal:
    digits = text.rstrip("lL")
    value = int(digits) if len(digits) <= 19 else LONG_MAX + 1
    if value > LONG_MAX:
        raise ExpressionError(f"{clipped(text)} is above {LONG_MAX}")
    return Literal(value if value <= INTEGER_MAX else Long(value))


def _floating(text: str) -> Literal:
    value = float(text)
    if not 0.0 < value <= _DOUBLE_MAX:
        raise ExpressionError(f"{clipped(text)} is not within 4.9E-324..{_DOUBLE_MAX}")
    return Literal(value)


def _text_test(is_negated: bool, operand: Node, word: str, literal: str) -> TextTest:
    return TextTest(word, operand, _text(literal), is_negated)


class _Builder:
    """Creates the nodes: one function per grammar rule, called with the rule's children.

    `x <> y` becomes NOT (x = y), and BETWEEN becomes two comparisons, as in Apache; this decides their result for None.
    """

    either = staticmethod(lambda children: _joined(Or, *children))
    both = staticmethod(lambda children: _joined(And, *children))
    equal = staticmethod(lambda children: _equality(*children))
    unequal = staticmethod(lambda children: Not(_equality(*children)))
    null = staticmethod(lambda children: Comparison("=", children[0], Literal(None)))
    not_null = staticmethod(lambda children: Not(Comparison("=", children[0], Literal(None))))
    inequality_sign = staticmethod(lambda children: str(children[0]))
    inequality = staticmethod(lambda children: _inequality(children[1], children[0], children[2]))
    between = staticmethod(lambda children: _within(*children))
    not_between = staticmethod(
        lambda children: Or((_inequality("<", *children[:2]), _inequality(">", children[0], children[2])))
    )
    among = staticmethod(lambda children: _among(*children))
    not_among = staticmethod(lambda children: Not(_among(*children)))
    text_word = staticmethod(lambda children: children[0].type)
    text_test = staticmethod(lambda children: _text_test(False, *children))
    not_text_test = staticmethod(lambda children: _text_test(True, *children))
    negative = staticmethod(lambda children: Negative(children[0]))
    negation = staticmethod(lambda children: Not(_condition(children[0])))
    string = staticmethod(lambda children: Literal(_text(children[0])))
    decimal = staticmethod(lambda children: _decimal(children[0]))
    floating = staticmethod(lambda children: _floating(children[0]))
    true = staticmethod(lambda children: Literal(True))
    false = staticmethod(lambda children: Literal(False))
    nothing = staticmethod(lambda children: Literal(None))
    name = staticmethod(lambda children: Property(str(children[0])))
