"""SQL92 expressions: verdicts of RocketMQ's own parser and evaluator on random expressions and messages."""

import random
import re
import subprocess
from collections.abc import Iterable
from urllib.parse import quote

import pytest

from pocketmq.broker.filter.bloom_filter import BloomFilter
from tests.golden.sql92_corpus import FilterCache, Messages, expressions, messages, our_verdicts, read_golden, write_golden
from tests.interop import toolchain
from tests.interop.drivers import toolchain_missing
from tests.interop.servers import JAVA_OPTIONS
from tests.support.amount import cases

MESSAGES = 24
EXPRESSIONS = 2000
RANDOM_EXPRESSIONS = cases(500, EXPRESSIONS)
JARS = {"4.9.4": "4.9.4", "5.5.0": "5.5.0-broker"}


def ask_apache(version: str, lines: Iterable[list[str]]) -> list[str]:
    try:
        classes, jars = toolchain.sql92_classes(JARS[version]), toolchain.jars(JARS[version])
    except toolchain.ToolchainMissing as missing:
        toolchain_missing(str(missing))
    text = "".join(" ".join(quote(word, safe="") for word in line) + "\n" for line in lines)
    command = ["java", *JAVA_OPTIONS, "-Xmx256m", "-cp", f"{classes}:{jars}/*", "Sql92Verdicts"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()


def apache_verdicts(version: str, found: Messages, texts: list[str]) -> FilterCache:
    lines = [["message", properties] for properties in found]
    answers = ask_apache(version, [*lines, *(["expression", text] for text in texts)])
    return dict(zip(texts, answers, strict=True))


@pytest.mark.parametrize("version", cases(["5.5.0"], list(JARS)))
def test_random_expressions_give_apache_s_results(version: str) -> None:
    """Random expressions, with the seed in the failure message. 4.9.4 does not know CONTAINS and similar operators."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    found = messages(chance, MESSAGES)
    texts = expressions(chance, RANDOM_EXPRESSIONS, with_words_of_5=version != "4.9.4")
    wrong = {
        text: (apache, ours)
        for text, apache in apache_verdicts(version, found, texts).items()
        if (ours := our_verdicts(text, found)) != re.sub("[NE]", "-", apache)
    }
    assert wrong == {}, f"seed {seed}, messages {found}"


def test_golden_results_equal_those_of_5_5_0(pytestconfig: pytest.Config) -> None:
    """The verdicts that tests/broker/test_expression.py uses without Java are those of 5.5.0."""
    if pytestconfig.getoption("write_golden"):
        chance = random.Random(1)
        made = messages(chance, MESSAGES)
        write_golden(made, apache_verdicts("5.5.0", made, expressions(chance, EXPRESSIONS)))
    found, verdicts = read_golden()
    assert apache_verdicts("5.5.0", found, list(verdicts)) == verdicts


def test_bloom_filter_bits_equal_apache_s() -> None:
    cases = [(20, 32, "group#Topic"), (1, 1000, "g" * 40 + "#é"), (99, 1, ""), (50, 7, "0123456789abcdef")]
    answers = ask_apache("4.9.4", (["bloom", str(error), str(count), text] for error, count, text in cases))
    for (error, count, text), answer in zip(cases, answers, strict=True):
        bloom_filter = BloomFilter(error, count)
        assert f"{bloom_filter.bit_count} {bloom_filter.positions(text)}" == answer
