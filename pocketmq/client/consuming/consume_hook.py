"""Hooks that are called before and after each message is consumed (Apache: ConsumeMessageHook), such as message trace."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pocketmq.client.message import MessageExt, now_ms

log = logging.getLogger("client")


@dataclass
class ConsumeContext:
    """One message being consumed. `failure` and `spent_ms` are known after it; `failure` None: it was consumed."""

    group: str
    client_id: str
    topic: str
    message: MessageExt
    began_ms: int
    spent_ms: float = 0.0
    failure: BaseException | None = None
    marks: dict[object, Any] = field(default_factory=dict)
    """Values that a hook keeps from `before_consume` to `after_consume`, by the hook."""


class ConsumeHook(Protocol):
    """Called in the event loop, so it must not block. An exception is logged and changes nothing."""

    def before_consume(self, context: ConsumeContext) -> None:
        """Called before a message is given to its listener, or to the loop that takes it."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Called when the message was consumed, or has failed."""


class Hooks:
    """The hooks of one consumer."""

    def __init__(self, group: str, client_id: str, hooks: Iterable[ConsumeHook]) -> None:
        self._group, self._client_id = group, client_id
        self._hooks = tuple(hooks)

    def before(self, message: MessageExt) -> ConsumeContext:
        """Begin a message; return its context for `after`."""
        context = ConsumeContext(self._group, self._client_id, message.topic, message, now_ms())
        for hook in self._hooks:
            try:
                hook.before_consume(context)
            except Exception:
                log.exception("a hook failed before %s was consumed", message.msg_id)
        return context

    def after(self, context: ConsumeContext, spent_ms: float, failure: BaseException | None) -> None:
        """End a message."""
        context.spent_ms, context.failure = spent_ms, failure
        for hook in self._hooks:
            try:
                hook.after_consume(context)
            except Exception:
                log.exception("a hook failed after %s was consumed", context.message.msg_id)
