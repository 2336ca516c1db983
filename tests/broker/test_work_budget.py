"""Filters of peers on records of peers: no request occupies the event loop for long, and none loses a message by that."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.broker.filter import compiled_expressions, expression_filter
from pocketmq.broker.filter.expression_code import SEARCHES_MAX
from pocketmq.broker.filter.expression_filter import function_size
from pocketmq.broker.filter.subscription import SQL92
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.pop import PopMessageRequestHeader
from pocketmq.runtime import work_slices
from pocketmq.runtime.work_slices import WorkSlices
from pocketmq.store.format.properties import entries_from
from tests.broker.compiling import compile_expression
from tests.broker.data_path import TOPIC, DataPath, StubChannel, pull_header, records, send_header, until
from tests.golden.linear import assert_linear, cpu_s
from tests.support.amount import cases

LIMIT_S = 0.05
LONG = "\x02".join(f"k{number}\x01{'v' * 90}" for number in range(310)) + "\x02"
"""A property string of 30 KB."""
TERMS = " OR ".join(["zz0='x'"] * 300)
COUNT = cases(120, 300)
SUSPEND = 2 | 4


@pytest.fixture
async def path() -> DataPath:
    path = DataPath({"enable_property_filter": True})
    for number in range(COUNT):
        path.ask(
            RequestCode.SEND_MESSAGE_V2, send_header(LONG + ("zz0\x01x" if number == COUNT - 1 else "")), b"%d" % number
        )
    path.turn()
    return path


async def timed(path: DataPath, code: int, header: CommandHeader) -> tuple[float, RemotingCommand]:
    """Return the CPU time until a request is served or waits for its work in slices, and its answer."""
    path.channel.take()
    used_s = cpu_s(lambda: path.ask(code, header), 1)
    await until(lambda: path.channel.out)
    path.turn()
    (answer,) = path.channel.take()
    return used_s, answer


async def test_a_costly_pull_is_answered_with_the_offset_at_which_to_go_on(path: DataPath) -> None:
    queue_offset, pulls, bodies = 0, 0, []
    while queue_offset < COUNT:
        header = pull_header(queue_offset, subscription=TERMS, expression_type=SQL92)
        used_s, answer = await timed(path, RequestCode.PULL_MESSAGE, header)
        assert used_s < LIMIT_S
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
        bodies += [record.body for record in records(answer.body)]
        assert int(answer.ext["nextBeginOffset"]) > queue_offset
        queue_offset, pulls = int(answer.ext["nextBeginOffset"]), pulls + 1
    assert bodies == [b"%d" % (COUNT - 1)], "no message is skipped"
    assert pulls > 1


async def test_costly_pops_find_the_message_in_the_end(path: DataPath) -> None:
    header = PopMessageRequestHeader("cg", TOPIC, -1, 32, 60_000, 0, exp_type=SQL92, exp=TERMS)
    for _ in range(COUNT):
        used_s, answer = await timed(path, RequestCode.POP_MESSAGE, header)
        assert used_s < LIMIT_S
        if answer.code == ResponseCode.SUCCESS:
            assert [record.body for record in records(answer.body)] == [b"%d" % (COUNT - 1)]
            return
    pytest.fail("the pops do not get to the message")


async def test_expressions_of_many_connections_are_compiled_in_slices(path: DataPath) -> None:
    consumers = [StubChannel(number) for number in range(10, 50)]

    def ask_all() -> None:
        for number, consumer in enumerate(consumers):
            fields = {"subscription": f"m{number}='x' OR {TERMS[12:]}", "expression_type": SQL92}
            path.ask(RequestCode.PULL_MESSAGE, pull_header(COUNT, **fields), b"", consumer)

    assert cpu_s(ask_all, 1) < LIMIT_S
    waiting = sum(consumer.is_suspended for consumer in consumers)
    assert waiting > 0
    consumers[-1].close()
    await until(lambda: all(consumer.out for consumer in consumers[:-1]))
    answers = [consumer.take() for consumer in consumers[:-1]]
    assert {answer.code for (answer,) in answers} == {ResponseCode.PULL_NOT_FOUND}


async def test_an_expression_is_compiled_once_for_all_who_wait_for_it(path: DataPath, monkeypatch: Any) -> None:
    parsed: list[str] = []
    parsing = compiled_expressions.parsing
    monkeypatch.setattr(compiled_expressions, "parsing", lambda text: (parsed.append(text), parsing(text))[1])
    text = "once='x' OR " + TERMS
    consumers = [StubChannel(number) for number in range(10, 20)]
    for consumer in consumers * 2:
        if not consumer.is_suspended:
            path.ask(RequestCode.PULL_MESSAGE, pull_header(COUNT, subscription=text, expression_type=SQL92), b"", consumer)
    await until(lambda: all(consumer.out for consumer in consumers))
    path.pull(COUNT, subscription=text, expression_type=SQL92)
    assert len(parsed) <= len(consumers)
    count = len(parsed)
    path.pull(COUNT, subscription=text, expression_type=SQL92)
    assert len(parsed) == count


async def test_kept_functions_are_limited_by_their_size(path: DataPath, monkeypatch: Any) -> None:
    size = function_size(TERMS)
    monkeypatch.setattr(expression_filter, "_KEPT_SIZE_MAX", 3 * size)
    texts = [f"k{number}='x' OR {TERMS[12:]}" for number in range(5)]
    for text in texts:
        path.pull(COUNT, subscription=text, expression_type=SQL92)
    kept = [text for text in texts if text in expression_filter._kept]
    assert texts[-1] in kept and len(kept) <= 3


async def test_held_pulls_with_costly_filters_are_woken_in_slices(path: DataPath) -> None:
    consumers = [StubChannel(number) for number in range(10, 26)]
    for number, consumer in enumerate(consumers):
        fields = {"subscription": f"n{number}='x' OR {TERMS[12:]}", "expression_type": SQL92, "sys_flag": SUSPEND}
        path.ask(RequestCode.PULL_MESSAGE, pull_header(COUNT, **fields), b"", consumer)
    await until(lambda: path.services.holds.count == len(consumers))
    for _ in range(64):
        path.ask(RequestCode.SEND_MESSAGE_V2, send_header(LONG), b"unwanted")
    assert cpu_s(path.turn, 1) < LIMIT_S
    await until(lambda: not path.services.holds._rounds)
    path.ask(RequestCode.SEND_MESSAGE_V2, send_header("zz0\x01x"), b"wanted")
    path.turn()
    await until(lambda: path.services.holds.count == 0)
    assert all(consumer.take() for consumer in consumers)


@pytest.mark.parametrize(
    ("value", "term"),
    [
        ("1" * 30_000 + "x", "zz0 > 5.5"),
        ("1" * 30_000, "zz0 > 5"),
        ("é" * 15_000, "zz0 CONTAINS 'ab'"),
        ("\ufffd" * 10_000, "zz0 = TRUE"),
        (" " * 30_000, "zz0 < 1"),
    ],
)
@pytest.mark.parametrize("count", [SEARCHES_MAX, 299])
def test_one_long_value_in_many_terms_costs_little(value: str, term: str, count: int) -> None:
    judge = compile_expression(" OR ".join([term] * count))
    entries = entries_from(f"zz0\x01{value}".encode())
    assert cpu_s(lambda: judge([entries]), 1) < LIMIT_S


def test_the_cost_of_a_number_that_is_none_is_linear() -> None:
    judge = compile_expression("a > 5.5")
    assert_linear(judge, lambda size: [entries_from(b"a\x01" + b"1" * size + b"x")], 4_000)


@pytest.mark.parametrize("count", [1, SEARCHES_MAX, SEARCHES_MAX + 1, 40])
@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"a\x011",
        b"a\x015\x02b\x01x",
        b"a\x01\x02a\x017\x02",
        b"a\x017\x02a\x01",
        b"a\x01x",
        b"a\x01\xff\x02b\x01\xc3\xa9",
    ],
)
def test_many_terms_mean_the_same_as_few(properties: bytes, count: int) -> None:
    """With many references to properties an expression is compiled in another way."""
    terms = (
        "a > 4",
        "a = '7'",
        "a IS NULL",
        "a IS NOT NULL",
        "NOT (a < 3.5)",
        "b = 'é'",
        "b IN ('x', 'y')",
        "a = b",
        "a <> '7'",
    )
    for term, word in itertools.product(terms, ("AND", "OR")):
        few = compile_expression(term)([entries_from(properties)])
        assert compile_expression(f" {word} ".join([term] * count))([entries_from(properties)]) == few, term


def long_work(done: list[int], number: int, piece_s: float = 0.002, pieces: int = 40) -> Iterator[None]:
    """Work of long pieces."""
    for _ in range(pieces):
        end_s = work_slices.time.thread_time() + piece_s
        while work_slices.time.thread_time() < end_s:
            pass
        done.append(number)
        yield


async def test_long_pieces_of_new_work_are_put_off(path: DataPath) -> None:
    slices, done = WorkSlices(path.services.timers), []
    slices.start(long_work(done, 0))
    assert 0 < len(done) < work_slices.PIECES_MIN
    await until(lambda: len(done) == 40)


async def test_all_work_begun_at_the_same_time_has_one_budget(path: DataPath) -> None:
    slices, done = path.services.slices, []

    def begun() -> None:
        for number in range(40):
            slices.start(long_work(done, number, pieces=3))

    assert cpu_s(begun, 1) < LIMIT_S
    assert 0 < len(done) < 40, "not even the first piece of each is done at once"
    await until(lambda: len(done) == 3 * 40)
    assert done.index(39) < 60, "most turns are for work that has not begun"


async def test_short_work_begun_one_after_the_other_pauses(path: DataPath) -> None:
    """Work that ends within its first slice is charged as well."""
    slices, done = path.services.slices, []
    for number in range(20):
        slices.start(long_work(done, number, piece_s=0.01, pieces=1))
    assert len(done) < 20
    await until(lambda: len(done) == 20)
