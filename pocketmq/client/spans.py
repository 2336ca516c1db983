"""Spans of OpenTelemetry around sends and consumptions, where its library (`opentelemetry-api`) is installed.

A message carries the context of its send in properties (`traceparent`), so that the span of its consumption is a child of
the sender's. Names and attributes are those of the semantic conventions for messaging. Nothing is done without the
library, or before the program has set it up.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from pocketmq.client.consuming.consume_hook import ConsumeContext
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.message_check import joined_keys

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

SYSTEM: Final = "rocketmq"


def _is_wanted() -> bool:
    """Return whether the program has set up OpenTelemetry; only then is there anything to do."""
    return IS_INSTALLED and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _attributes(operation: str, group: str, message: Message | MessageExt) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": message.topic,
        "messaging.rocketmq.client_group": group,
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if keys := joined_keys(message.keys):
        found["messaging.rocketmq.message.keys"] = keys.split()
    return found


def carrying(message: Message) -> Message:
    """Return a message with the present context in its properties; the given one stays as it is."""
    if not _is_wanted() or not isinstance(message, Message):
        return message
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return msgspec.structs.replace(message, properties={**message.properties, **carrier}) if carrier else message


@contextmanager
def sending(group: str, messages: Sequence[Message]) -> Iterator[tuple[list[Message], Any]]:
    """Send messages of one topic within a span. Gives them with its context, and the span: None without the library."""
    if not _is_wanted() or not messages or not isinstance(messages[0], Message):  # the send refuses others
        yield list(messages), None
        return
    attributes = _attributes("send", group, messages[0])
    if len(messages) > 1:
        attributes["messaging.batch.message_count"] = len(messages)
    tracer, name = trace.get_tracer("pocketmq"), f"send {messages[0].topic}"
    with tracer.start_as_current_span(name, kind=trace.SpanKind.PRODUCER, attributes=attributes) as span:
        yield [carrying(message) for message in messages], span


def sent(span: Any, msg_id: str) -> None:
    """Note the id of the message that was sent."""
    if span is not None:
        span.set_attribute("messaging.message.id", msg_id)


class SpanHook:
    """Gives each consumption a span, which is current for the listener or the loop."""

    def before_consume(self, consumed: ConsumeContext) -> None:
        """Begin the span of a message."""
        if not _is_wanted():
            return
        message, parent = consumed.message, propagate.extract(consumed.message.properties)
        attributes = _attributes("process", consumed.group, message)
        attributes["messaging.message.id"] = message.msg_id
        attributes["messaging.message.body.size"] = len(message.body)
        span = trace.get_tracer("pocketmq").start_span(
            f"process {message.topic}", parent, kind=trace.SpanKind.CONSUMER, attributes=attributes
        )
        consumed.marks[self] = span, context.get_current()
        context.attach(trace.set_span_in_context(span, parent))

    def after_consume(self, consumed: ConsumeContext) -> None:
        """End it. The former context is set again, not detached: `ack` may be called by another task than the loop's."""
        if self not in consumed.marks:
            return
        span, before = consumed.marks[self]
        if consumed.failure is not None:
            span.record_exception(consumed.failure)
            span.set_status(trace.StatusCode.ERROR, str(consumed.failure))
        if trace.get_current_span() is span:
            context.attach(before)
        span.end()
