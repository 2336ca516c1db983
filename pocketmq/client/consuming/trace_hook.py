"""TraceHook: Apache's message trace of a consumer, one record before and one after each message (client/trace)."""

from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consuming.consume_hook import ConsumeContext
from pocketmq.client.message import now_ms
from pocketmq.client.trace import TRACE_TOPIC, TraceWriter, is_wanted, sub_after, sub_before

EXCEPTION = 2
"""Code of a record whose listener raised."""


class TraceHook:
    """Writes the records of one consumer."""

    def __init__(self, instance: ClientInstance, group: str, topic: bool | str) -> None:
        """`topic`: True for the usual trace topic, or another one."""
        self.writer = TraceWriter(instance, group, TRACE_TOPIC if topic is True else str(topic))

    def before_consume(self, context: ConsumeContext) -> None:
        """Note that a message is given to its listener."""
        if is_wanted(context.message):
            self.writer.add(sub_before(context.group, [context.message], _request_id(context), context.began_ms))

    def after_consume(self, context: ConsumeContext) -> None:
        """Note how it ended."""
        if is_wanted(context.message):
            is_ok = context.failure is None
            code, cost_ms = 0 if is_ok else EXCEPTION, int(context.spent_ms)
            record = sub_after(context.group, [context.message], _request_id(context), now_ms(), cost_ms, is_ok, code)
            self.writer.add(record)


def _request_id(context: ConsumeContext) -> str:
    """Return the id that joins the two records of one consumption."""
    return f"{context.client_id}-{context.began_ms}-{id(context):x}"
