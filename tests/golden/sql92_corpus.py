"""Random SQL92 expressions and messages, and the verdicts of Apache 5.5.0 on them.

The first line of `sql92.jsonl.gz` has the messages' property strings. Each further line has an expression and Apache's
verdicts: one letter per message, (T)rue, (F)alse, (N)one or (E)rror; or a single X if the expression does not compile.
tests/interop/test_sql92_verdicts.py compares the file with Apache's verdicts, and writes it with `--write-golden`.
"""

import gzip
import json
import random
from pathlib import Path

from pocketmq.broker.filter.expression import Not, parsing
from pocketmq.broker.filter.expression_code import function_steps
from pocketmq.broker.filter.expression_filter import ExpressionError
from pocketmq.store.format.properties import entries_from
from tests.broker.compiling import result_of

Messages = list[str]
"""The property strings of messages."""
FilterCache = dict[str, str]

GOLDEN = Path(__file__).parent / "sql92.jsonl.gz"
WORDS_OF_5 = ("CONTAINS", "STARTSWITH", "ENDSWITH")

NAMES = ["a", "b", "c", "n", "m", "TAGS", "_u", "$d", "A", "gone"]
_VALUES = """
0 1 5 -3 +5 007 42 99 2147483647 2147483648 -2147483648 -2147483649 9223372036854775807 9223372036854775808
-9223372036854775808 5.0 5. .5 -0.0 0.0 1e3 1E-3 2.5f 2d 0x1p3 0x1.8P1 0x.8p+2 NaN -NaN Infinity -Infinity
infinity nan inf 1_000 1L 0x10 4.9e-324 1e400 -1e400 true TRUE True false yes abc ABC ab a abcabc é ٥ ５ 𝟓
12a - + . e5 --5 +-5 1.2.3 9007199254740993 9007199254740992 123456789 1234567890 12345678901234567890
"""
VALUES = [*_VALUES.split(), "", " ", " 5", "5 ", "\t2.5\n", "\u00a05", "it's", "''", "a b", "%", "5\u2003"]
_NUMBERS = """
0 1 2 5 7 42 100 5L 5l 2147483647 2147483648 9223372036854775807 9007199254740993 0.5 .5 5. 5.0 2.5 1e3
1.5E+2 8.0 9007199254740992.0 4.9e-324
"""
NUMBERS = _NUMBERS.split()
ODD_NUMBERS = ["9223372036854775808", "0.0", "1e400", "1e-400", "007", "0L", "5LL", "5abc", "1.2.3", "00.5", "5e", "1_000"]
TEXTS = ["abc", "a", "ab", "c", "5", "5.0", "true", "TRUE", "", "it''s", "é", "b c", "x", "''", "--", "/*"]
GARBAGE = [
    ")", "(", "b", "= 1", "1", "'x'", "NOT", "AND", "OR", "IS", ",", "#", "@", "%", "'", ";", "-", "+", "/", "--", "/*", "<",
    "!", "NULL", "IN", "BETWEEN", "LIKE 'a%'", "\u00a0", "é", "AND TRUE",
]  # fmt: skip


ODD_ENTRIES = [
    "",
    "\x01",
    "gone",
    "gone\x01",
    "\x01gone",
    "\x01gone\x015",
    "xa\x017",
    "a\x01",
    "b\x015\x01c\x015",
    "n\x01\x01",
]


def messages(chance: random.Random, count: int) -> Messages:
    """Return random messages. Some have a name twice, an invalid entry, or a final separator, as 5.x clients write it."""
    made: Messages = ["", "\x02".join(f"{name}\x015" for name in NAMES[:-1])]
    while len(made) < count:
        names = [name for name in NAMES[:-1] if chance.random() < 0.8]
        names += [name for name in names if chance.random() < 0.1]
        entries = [f"{name}\x01{chance.choice(VALUES)}" for name in names]
        entries += [entry for entry in ODD_ENTRIES if chance.random() < 0.1]
        chance.shuffle(entries)
        made.append("\x02".join(entries) + chance.choice(["", "\x02"]))
    return made


class Expressions:
    """Writes expressions, most of which compile."""

    def __init__(self, chance: random.Random, *, with_words_of_5: bool = True) -> None:
        self._chance = chance
        self._with_words_of_5 = with_words_of_5

    def make(self) -> str:
        text = self._condition(self._chance.choice([0, 1, 1, 2, 2, 3]))
        if self._chance.random() < 0.08:
            text += " " + self._chance.choice(GARBAGE)
        if self._chance.random() < 0.08:
            words = text.split(" ")
            place = self._chance.randrange(len(words))
            words[place : place + self._chance.randrange(2)] = [self._chance.choice([*GARBAGE, *NAMES, *ODD_NUMBERS])]
            text = " ".join(words)
        return text

    def _condition(self, depth: int) -> str:
        chance = self._chance
        if depth == 0:
            return self._test()
        kind = chance.random()
        if kind < 0.7:
            operator = chance.choice(["AND", "OR"])
            terms = [self._condition(depth - 1) for _ in range(chance.choice([2, 2, 3]))]
            terms = [f"({term})" if chance.random() < 0.5 else term for term in terms]
            return self._spaced(f" {self._case(operator)} ".join(terms))
        if kind < 0.9:
            return f"{self._case('NOT')} ({self._condition(depth - 1)})"
        return f"({self._condition(depth - 1)})"

    def _test(self) -> str:
        chance, case = self._chance, self._case
        left = self._operand()
        negated = case("NOT ") if chance.random() < 0.4 else ""
        kinds = (
            ["compare"] * 8 + ["between"] * 3 + ["in"] * 2 + ["null"] * 2 + ["bare"] + ["text"] * 2 * self._with_words_of_5
        )
        kind = chance.choice(kinds)
        if kind == "compare":
            operator = chance.choice(["=", "=", "<>", "<", "<=", ">", ">="])
            space = chance.choice(["", " "])
            right = self._operand()
            if operator not in ("=", "<>") and chance.random() < 0.8:  # these operators refuse most operands that = accepts
                left, right = self._name(), self._bound()
            return f"{left}{space}{operator}{space}{right}"
        if kind == "between":
            low, high = self._bound(), self._bound()
            return f"{self._name()} {negated}{case('BETWEEN')} {low} {case('AND')} {high}"
        if kind == "in":
            texts = ", ".join(self._text() for _ in range(chance.choice([1, 2, 3, 6])))
            return f"{self._name()} {negated}{case('IN')} ({texts})"
        if kind == "null":
            return f"{left} {case('IS')} {negated}{case('NULL')}"
        if kind == "text":
            operand = left if chance.random() < 0.3 else self._name()
            return f"{operand} {negated}{case(chance.choice(WORDS_OF_5))} {self._text()}"
        return case(chance.choice(["TRUE", "FALSE", "NULL", "a", "NOT gone", "'x'", "+a", "5"]))

    def _operand(self) -> str:
        chance = self._chance
        kind = chance.random()
        if kind < 0.5:
            return self._name()
        if kind < 0.75:
            return self._bound()
        if kind < 0.87:
            return self._text()
        if kind < 0.93:
            return self._case(chance.choice(["TRUE", "FALSE"]))
        others = [
            "NULL",
            "-'x'",
            "-TRUE",
            f"-{self._name()}",
            f"+ {self._name()}",
            f"({self._name()})",
            f"-({self._text()})",
        ]
        others += [f"- -{chance.choice(NUMBERS)}", f"- - -{chance.choice(NUMBERS)}"]
        return chance.choice([*others, f"(a = {self._bound()})", f"-(b > {self._bound()})"])

    def _bound(self) -> str:
        chance = self._chance
        if chance.random() < 0.06:
            return chance.choice(ODD_NUMBERS)
        if chance.random() < 0.06:
            return self._name()
        return chance.choice(["", "", "", "-", "+", "- "]) + chance.choice(NUMBERS)

    def _name(self) -> str:
        return self._chance.choice(NAMES)

    def _text(self) -> str:
        return f"'{self._chance.choice(TEXTS)}'"

    def _case(self, word: str) -> str:
        kind = self._chance.random()
        return word if kind < 0.7 else word.lower() if kind < 0.9 else word.title()

    def _spaced(self, text: str) -> str:
        if self._chance.random() > 0.1:
            return text
        return text.replace(
            " ", self._chance.choice(["  ", "\t", "\n", " /* x ** / */ ", " -- it's\n", " \f\r\n", " /**/ "]), 1
        )


def expressions(chance: random.Random, count: int, *, with_words_of_5: bool = True) -> list[str]:
    made = Expressions(chance, with_words_of_5=with_words_of_5)
    found: dict[str, None] = {}
    while len(found) < count:
        found[made.make()] = None
    return list(found)


def our_verdicts(text: str, found: Messages) -> str:
    """Return one letter per message: T if the expression selects it, F if its negation does, else -; X if it is invalid."""
    try:
        tree = result_of(parsing(text))
    except ExpressionError:
        return "X"
    run = [entries_from(properties.encode()) for properties in found]
    verdicts = zip(result_of(function_steps(tree))(run), result_of(function_steps(Not(tree)))(run), strict=True)
    return "".join("T" if is_wanted else "F" if is_refused else "-" for is_wanted, is_refused in verdicts)


def read_golden() -> tuple[Messages, FilterCache]:
    lines = gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()
    return json.loads(lines[0]), dict(json.loads(line) for line in lines[1:])


def write_golden(found: Messages, verdicts: FilterCache) -> None:
    lines = [json.dumps(found), *(json.dumps(item) for item in verdicts.items())]
    GOLDEN.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))
