"""Any request gets an answer with a status, and the broker goes on serving."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.proxy.grpc_client import GrpcClient, consumer_settings, endpoints, resource
from tests.proxy.served import ORDERED, TOPICS, running_front
from tests.support.amount import cases

AT_ONCE = {
    "grpc_client_consumer_min_long_polling_timeout_millis": 0,
    "grpc_client_consumer_max_long_polling_timeout_millis": 1,
}
"""Settings of a front that holds neither receives nor pulls."""
REQUESTS = [
    getattr(pb, method.input_type.name)
    for method in pb.DESCRIPTOR.services_by_name["MessagingService"].methods
    if method.name != "Telemetry"
]
FINE = {
    "name": [*TOPICS, "g", ORDERED, "%RETRY%g", "%DLQ%g", "b", "unknown"],
    "expression": ["*", "a || b", "a > 1", "a >"],
    "host": ["127.0.0.1"],
    "receipt_handle": [
        "0 1700000000000 9000000000000 0 0 b 0 0 0",
        "0 1700000000000 9000000000000 99999999999 0 b 0 0 -1",
        f"{1 << 70} 1700000000000 {1 << 70} -1 1 b -1 {1 << 64} {1 << 64}",
        "0 1700000000000 9000000000000 0 2 b 2147483648 0 0",
    ],
    "transaction_id": ["WyJiIiwwLDAsImciLCJ4Il0", "WyJiIiwtMSwtMSwiZyIsIngiXQ"],
    "recall_handle": ["djEgZGVsYXkgYiAxIGtleQ=="],
}
"""Values of text fields that lead further than the first check."""
NUMBERS = {
    Field.TYPE_INT32: st.sampled_from([0, 1, -1, 3, (1 << 31) - 1, -(1 << 31)]),
    Field.TYPE_INT64: st.sampled_from([0, 1, -1, 1_700_000_000_000, (1 << 63) - 1, -(1 << 63)]),
    Field.TYPE_BOOL: st.booleans(),
    Field.TYPE_BYTES: st.binary(max_size=50),
    Field.TYPE_FLOAT: st.sampled_from([0.0, 2.0]),
}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@cache
def value_of(field: Field) -> st.SearchStrategy[Any]:
    """Return values of one field, not repeated."""
    if field.message_type is not None:
        return of_type(field.message_type._concrete_class)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values] + [77])
    if field.type == Field.TYPE_STRING:
        return st.sampled_from(FINE[field.name]) | TEXTS if field.name in FINE else TEXTS
    return NUMBERS[field.type]


@cache
def of_type(declared: type[Any]) -> st.SearchStrategy[Any]:
    """Return messages of a type with any of its fields."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Any:
        result = declared()
        for field in declared.DESCRIPTOR.fields:
            if draw(st.integers(0, 4)) == 0:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                getattr(result, field.name).update(draw(st.dictionaries(TEXTS, TEXTS, max_size=3)))
            elif field.is_repeated:
                getattr(result, field.name).extend(draw(st.lists(value_of(field), max_size=2)))
            elif field.message_type is not None:
                getattr(result, field.name).CopyFrom(draw(value_of(field)))
            else:
                setattr(result, field.name, draw(value_of(field)))
        return result

    return drawn()


def parsed(declared: type[Any], data: bytes) -> Any:
    """Return random bytes as a message; empty if they are none."""
    result = declared()
    with contextlib.suppress(DecodeError):
        result.ParseFromString(data)
    return result


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[GrpcClient, Callable[[Coroutine[Any, Any, Any]], Any]]]:
    """Run a front that does not hold receives; return a client, and the function that runs an example in its loop."""
    loop, stack = asyncio.new_event_loop(), contextlib.AsyncExitStack()

    async def start() -> GrpcClient:
        front = await stack.enter_async_context(running_front(AT_ONCE))
        client = await stack.enter_async_context(front.client())
        await stack.enter_async_context(client.telemetry(consumer_settings("g", "normal")))
        return client

    client = loop.run_until_complete(start())
    yield client, loop.run_until_complete
    loop.run_until_complete(stack.aclose())
    loop.close()


async def answered(client: GrpcClient, request: Any) -> None:
    """Send a request, and check that its answer has a status that is no error of the front, and that it goes on serving."""
    code = (await client.ask(request)).status.code
    assert code not in (pb.INTERNAL_ERROR, pb.CODE_UNSPECIFIED), pb.Code.Name(code)
    if isinstance(request, pb.NotifyClientTerminationRequest):
        async with client.telemetry(consumer_settings("g", "normal")):
            pass
    await client.done(pb.QueryRouteRequest(topic=resource("normal"), endpoints=endpoints()))


@pytest.mark.parametrize("declared", REQUESTS, ids=lambda declared: declared.__name__)
@settings(suppress_health_check=list(HealthCheck), max_examples=cases(10, 400))
@given(data=st.data())
def test_any_request_is_answered_with_a_status(served, declared, data):
    client, run = served
    run(answered(client, data.draw(of_type(declared))))


@settings(suppress_health_check=list(HealthCheck), max_examples=cases(20, 1000))
@given(declared=st.sampled_from(REQUESTS), bytes_=st.binary(max_size=200))
def test_any_bytes_that_are_a_request_are_answered_with_a_status(served, declared, bytes_):
    client, run = served
    run(answered(client, parsed(declared, bytes_)))


@settings(suppress_health_check=list(HealthCheck), max_examples=cases(10, 400))
@given(commands=st.lists(of_type(pb.TelemetryCommand), max_size=3))
def test_any_commands_leave_a_stream_that_answers_or_has_ended_in_order(served, commands):
    client, run = served

    async def example() -> None:
        async with client.telemetry() as stream:
            try:
                for command in commands:
                    await stream.call.write(command)
                await stream.call.done_writing()
            except grpc.aio.AioRpcError:
                pass
            code = await stream.end()
        assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)

    run(example())
    run(answered(client, pb.NotifyClientTerminationRequest()))
