"""A broker with hostile peers: others are served, work is bounded, and no memory stays behind."""

import asyncio
import contextlib
import json
import tracemalloc
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.filter import consumer_filter, expression_filter
from pocketmq.broker.filter.expression import OPERATORS_MAX
from pocketmq.broker.filter.expression_filter import ExpressionError
from pocketmq.broker.filter.subscription import SQL92, SUBSCRIPTION_SIZE_MAX, tag_filter
from pocketmq.broker.handlers import acl, relay
from pocketmq.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, Response, decode_header, encode_request
from pocketmq.remoting.dispatch import Route
from pocketmq.remoting.frame import FrameBuffer, frame_head
from pocketmq.remoting.header import NoHeader, ext_map
from pocketmq.remoting.headers.query import ConsumerRunningInfoRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.properties import mark_of, value_of
from tests.broker.compiling import compile_expression
from tests.broker.data_path import TOPIC, DataPath, pull_header, records
from tests.broker.running import ask, connected, create_topic, running_broker, until
from tests.golden.linear import assert_linear, cpu_s
from tests.patience import PATIENCE_S
from tests.support.memory import traced_memory

GROUP = "cg"


class RawPeer:
    """A connection that sends arbitrary bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._frames = reader, writer, FrameBuffer()

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, broker: Broker) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        yield cls(reader, writer)
        writer.close()

    def send(self, code: int, ext: dict[str, str], more: str = "", body: bytes = b"", opaque: int = 1) -> None:
        fields = {"extFields": ext, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 401}
        text = (f'{{"code":{code},' + json.dumps(fields)[1:-1] + more + "}").encode()
        self._writer.write(frame_head(0, len(text), len(body)) + text + body)

    async def answer(self) -> RemotingCommand | None:
        """Return the next answer, or None when the broker closed the connection."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                data = await self._reader.read(1 << 20)
                if not data:
                    return None
                for kind, header, body in self._frames.feed(data):
                    command = decode_header(kind, header)
                    command.body = body
                    return command


def held_pull() -> dict[str, str]:
    return ext_map(pull_header(0, sys_flag=2 | 4, suspend_timeout_millis=15_000))


async def send_message(client: Any, broker: Broker) -> None:
    header = SendMessageRequestHeaderV2("pg", TOPIC, "TBW102", 4, 0, 0, 0, 0)
    assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"body")).code == 0


@pytest.mark.parametrize("more", [',"~type":300', ',"~channel":1', ',"~raw":"eA=="', ',"opaque2":1'])
async def test_pull_with_an_unsendable_answer_does_not_harm_other_held_pulls(more: str) -> None:
    async with running_broker() as broker, connected() as client:
        await create_topic(client, broker, TOPIC)
        async with RawPeer.of(broker) as hostile, RawPeer.of(broker) as healthy:
            hostile.send(RequestCode.PULL_MESSAGE, held_pull(), more)
            holds = broker.services.holds
            await until(lambda: holds.count == 1)
            healthy.send(RequestCode.PULL_MESSAGE, held_pull(), opaque=7)
            await until(lambda: holds.count == 2)
            await send_message(client, broker)
            answer = await healthy.answer()
            assert answer is not None and (answer.code, answer.opaque) == (0, 7)
            assert [record.body for record in records(answer.body)] == [b"body"]


async def test_header_with_a_second_code_field_is_refused() -> None:
    asked: list[int] = []
    codes = (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    table = {code: Route(code, NoHeader, lambda _, request: asked.append(request.code) or Response()) for code in codes}
    async with running_broker() as broker, connected(table) as consumer:
        beat = encode_body(HeartbeatData("client", consumer_data_set=[ConsumerData(GROUP)]))
        await ask(consumer, broker, RequestCode.HEART_BEAT, None, beat)
        ext = ext_map(ConsumerRunningInfoRequestHeader(GROUP, "client"))
        async with RawPeer.of(broker) as hostile:
            hostile.send(codes[0], ext, f',"code":{int(codes[1])}')
            refused = await hostile.answer()
            assert refused is not None and refused.code == 1
        async with RawPeer.of(broker) as tool:
            tool.send(codes[0], ext)
            answer = await tool.answer()
        assert answer is not None and answer.code == 0
        assert asked == [codes[0]]


async def test_consumer_code_too_large_for_the_binary_header_is_answered_as_error(monkeypatch: Any) -> None:
    route = Route(RequestCode.GET_CONSUMER_RUNNING_INFO, NoHeader, lambda _, request: Response(70_000))
    async with running_broker() as broker, connected({route.code: route}) as consumer:
        beat = encode_body(HeartbeatData("client", consumer_data_set=[ConsumerData(GROUP)]))
        await ask(consumer, broker, RequestCode.HEART_BEAT, None, beat)
        async with RawPeer.of(broker) as tool:
            header = ConsumerRunningInfoRequestHeader(GROUP, "client")
            tool._writer.writelines(encode_request(route.code, header, b"", 5, serialize_type=1))
            answer = await tool.answer()
        assert answer is not None and (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 5)
        assert "70000" in (answer.remark or "")


def test_invalid_consumer_status_is_not_relayed() -> None:
    key = '{"brokerName":"b","queueId":0,"topic":"T"}'
    assert bytes(relay._status(f'{{"messageQueueTable":{{{key}:5}}}}'.encode())) == f"{{{key}:5}}".encode()
    for table in ('{"x\\":1},\\"code\\":{":1}', f"{{{key}:[[]]}}", f"{{{key}:null}}", "[]", '{"a":' * 5000):
        assert relay._status(f'{{"messageQueueTable":{table}}}'.encode()) == {}


# --- expressions ----------------------------------------------------------------------------------------------------

COSTLY = {
    "comments without end": lambda n: "a=" + "-" * n,
    "comments in blocks": lambda n: "a=1 " + "/*" * (n // 2),
    "comment after comment": lambda n: "--\n" * (n // 3) + "a=1",
    "quotes": lambda n: "a=" + "'" * n,
    "zeros": lambda n: "a=" + "0" * n,
    "digits": lambda n: "a=" + "1" * n,
    "an IN": lambda n: "a IN (" + ",".join(["'b'"] * (n // 4)) + ")",
    "a name": lambda n: "a" * n + " = 1",
}


@pytest.mark.parametrize("kind", COSTLY)
def test_expression_parsing_time_is_linear(kind: str) -> None:
    compile_expression("a = 1")
    texts = iter(range(10**6))  # makes each expression new, so that none is cached
    assert_linear(lambda text: compile_expression(f"{text} {next(texts)}", 10**6), COSTLY[kind], 4000)


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_compile_time_of_long_chains_is_linear(word: str) -> None:
    compile_expression("a = 1")
    texts = iter(range(10**6))

    def compiled(count: int) -> None:
        compile_expression(f" {word} ".join(f"a{next(texts)} = {number}" for number in range(count)), 10**6)

    assert_linear(compiled, lambda count: count, OPERATORS_MAX // 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = '" + "x" * 100 + "'", "the expression has 106 characters, the limit is 100 (maxFilterExpressionLength)"),
        ("a=" + "- " * 45, "ends too early"),
    ],
)
def test_expression_length_is_limited(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        compile_expression(text, 100)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a=" + "- " * 1000 + "1",
        " OR ".join(["a=1"] * 1000),
        "NOT " * 1000 + "a=1",
        "a" + " IS NULL" * 1000,
        "(" * 1000 + "a=1" + ")" * 1000,
        " OR ".join(["a BETWEEN 1 AND 2"] * 400),
    ],
)
def test_operators_and_nesting_of_an_expression_are_limited(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"more than \d+ (operators and keywords|nested parentheses)"):
        compile_expression(text, 10**6)


def test_comments_are_skipped_outside_strings_only() -> None:
    wanted = compile_expression("a = /* = 2 '*/ 1 -- AND b = 'x\n AND b = '--/*' -- the end\n/**/")
    entries = "\x02a\x011\x02b\x01--/*\x02"
    assert wanted([entries, "\x02a\x011\x02b\x01x\x02"]) == [True, False]
    assert compile_expression("a = 1 -- no line ends here")(["\x02a\x011\x02"]) == [True]
    with pytest.raises(ExpressionError):
        compile_expression("a = /* 1")


# --- heartbeats -----------------------------------------------------------------------------------------------------


def beat(*subscriptions: SubscriptionData) -> bytes:
    return encode_body(
        HeartbeatData("client", consumer_data_set=[ConsumerData(GROUP, subscription_data_set=[*subscriptions])])
    )


def sql(number: int, expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(f"T{number}", expression, SQL92, version)


@pytest.fixture
async def path() -> DataPath:
    path = DataPath()
    path.services.config.enable_property_filter = True
    return path


async def test_heartbeat_with_too_many_topics_is_refused(path: DataPath) -> None:
    path.services.config.max_subscriptions_per_heartbeat = 10
    answer = path.call(RequestCode.HEART_BEAT, None, beat(*(SubscriptionData(f"T{n}") for n in range(11))))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "maxSubscriptionsPerHeartbeat=10: this heartbeat has 11"
    assert path.services.clients.consumers.get(GROUP) is None
    assert path.call(RequestCode.HEART_BEAT, None, beat(*(SubscriptionData(f"T{n}") for n in range(10)))).code == 0


async def test_expressions_of_a_heartbeat_are_compiled_in_slices(path: DataPath) -> None:
    texts = [" OR ".join(f"a{n}x{m} = {m}" for m in range(200)) for n in range(20)]
    body = beat(*(sql(n, text) for n, text in enumerate(texts)))
    assert cpu_s(lambda: path.ask(RequestCode.HEART_BEAT, None, body), 1) < 0.05
    assert path.channel.is_suspended
    await until(lambda: not path.channel.is_suspended)
    last = path.services.filters.record_filter("T19", GROUP)
    assert last is not None and last.judge(["\x02a19x7\x017\x02", "\x02b\x017\x02"]) == [True, False]


async def test_invalid_expressions_of_a_heartbeat_are_dropped(path: DataPath) -> None:
    path.services.config.max_filter_expression_length = 20
    path.call(RequestCode.HEART_BEAT, None, beat(sql(1, "a = 'a long one x'"), sql(2, "a = = 1"), sql(3, "b" * 21)))
    filters = path.services.filters
    assert filters.record_filter("T1", GROUP) is not None
    assert filters.get("T2", GROUP) is None and filters.record_filter("T2", GROUP) is None
    assert filters.get("T3", GROUP) is None


async def test_subscriptions_by_expression_are_limited_by_their_size(path: DataPath, monkeypatch: Any) -> None:
    monkeypatch.setattr(consumer_filter, "FILTERS_SIZE_MAX", 100)
    path.call(RequestCode.HEART_BEAT, None, beat(*(sql(n, f"a = '{'x' * 24}{n}'") for n in range(5))))
    filters = path.services.filters
    assert [filters.get(f"T{n}", GROUP) is not None for n in range(5)] == [True, True, True, False, False]
    path.call(RequestCode.HEART_BEAT, None, beat(sql(0, "a = 1", version=2), sql(4, "a = 2")))
    assert filters.get("T4", GROUP) is not None


async def test_bitmaps_of_a_turn_take_a_limited_time(path: DataPath) -> None:
    filters = path.services.filters
    text = " OR ".join(f"a{n} = 'x'" for n in range(290))
    for number in range(200):
        for _ in filters.register(f"g{number}", [SubscriptionData("T", text, SQL92, sub_version=1)]):
            pass
        filters.record_filter("T", f"g{number}")
    entries = "\x02" + "".join(f"b{n}\x01{'v' * 90}\x02" for n in range(310))
    bitmaps: list[bytes] = []
    used_s = cpu_s(lambda: bitmaps.extend(filters.bitmap("T", entries) for _ in range(100)), 1)
    assert used_s < 0.05
    assert b"" in bitmaps


@pytest.mark.parametrize("body", [b'{"' + b'\\"' * 20_000, b"[" * 100_000, b'{"clientID":' + b"[" * 100_000])
async def test_body_that_is_not_json_is_refused_quickly_with_a_short_remark(path: DataPath, body: bytes) -> None:
    answers = []
    assert cpu_s(lambda: answers.append(path.call(RequestCode.HEART_BEAT, None, body)), 1) < 1
    assert answers[0].code == ResponseCode.SYSTEM_ERROR
    assert len(answers[0].remark or "") < 400


async def test_a_body_above_the_limit_is_refused(path: DataPath) -> None:
    answer = path.call(RequestCode.HEART_BEAT, None, b" " * (3 << 20))
    assert (answer.code, answer.remark) == (1, "body of request code 34: it has 3145728 bytes, the limit is 2097152")


# --- memory ---------------------------------------------------------------------------------------------------------


def kept_by(work: Any) -> int:
    """Return the bytes still allocated after 60 calls of `work`, each with another number; of two rounds, the less.

    Compiling adds to the interpreter's table of interned names, which once in a while grows by megabytes, in one of them.
    """
    work(0)
    kept = []
    for first in 1, 61:
        tracemalloc.start()
        for number in range(first, first + 60):
            with contextlib.suppress(ValueError):
                work(number)
        kept.append(traced_memory())
        tracemalloc.stop()
    return min(kept)


@pytest.mark.parametrize("separator", ["x", "||"])
def test_long_tag_filters_are_not_cached(separator: str) -> None:
    size = SUBSCRIPTION_SIZE_MAX // 2
    assert kept_by(lambda number: tag_filter(f"t{number}" + f"{separator}a" * (size // 4))) < size


async def test_junk_pulls_leave_no_memory_behind(path: DataPath) -> None:
    path.send("TAGS\x01A")

    def pull(number: int) -> None:
        subscription = f"{number}" + "x" * 500_000
        answer = path.pull(subscription=subscription)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert f"has {len(subscription)} characters, the limit is {SUBSCRIPTION_SIZE_MAX}" in (answer.remark or "")

    assert kept_by(pull) < 1_000_000


async def test_pulls_with_long_expressions_leave_little_memory_behind(path: DataPath, monkeypatch: Any) -> None:
    monkeypatch.setattr(expression_filter, "_KEPT_SIZE_MAX", 256 << 10)
    path.send("a\x011")

    def pull(number: int) -> None:
        expression = " OR ".join(f"a{number}x{term} = {term}" for term in range(100))
        path.pull(subscription=expression, expression_type=SQL92)

    assert kept_by(pull) < 3_500_000


def test_hash_codes_of_long_tags_are_not_cached() -> None:
    levels = DelayLevels("1s 5s")
    assert kept_by(lambda number: levels.tags_code(TOPIC, {"TAGS": f"{number}" + "x" * 30_000}, 0)) < 100_000


def test_property_with_many_empty_values_is_read_in_linear_time() -> None:
    mark = mark_of("a")
    assert_linear(lambda entries: value_of(entries, mark), lambda n: "\x02a\x01" * n + "\x02", 20_000)
    assert value_of("\x02a\x01x\x02a\x01\x02", mark) == "x"
    assert value_of("\x02a\x01\x02b\x01y\x02", mark) is None


async def test_pull_reads_a_limited_number_of_records(path: DataPath) -> None:
    for _ in range(2000):
        path.send("TAGS\x01A")
    answer = path.pull(subscription="B", max_msg_nums=2**31 - 1)
    assert answer.ext is not None and 0 < int(answer.ext["nextBeginOffset"]) < 1000


def test_white_list_is_split_in_linear_time() -> None:
    split = acl._split_outside_braces
    assert split("a,b.{1,2},c") == ["a", "b.{1,2}", "c"]
    assert split("a") == ["a"] and split(",") == ["", ""] and split("a,{b,c") == ["a", "{b", "c"]
    assert_linear(split, lambda count: "," * count, 4_000)
