"""PocketMQ: a RocketMQ-compatible name server and broker, and the asyncio client exported here.

The names in `__all__` are the public API. They are imported at first use, so that `import pocketmq`, which every command and
server executes, does not load the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.client.access import Access
    from pocketmq.client.client_instance import BrokerUnreachable
    from pocketmq.client.consumer import PushConsumer
    from pocketmq.client.consuming.consume_hook import ConsumeContext, ConsumeHook
    from pocketmq.client.consuming.consumer_options import ConsumerOptions
    from pocketmq.client.consuming.consumption import ReconsumeLater
    from pocketmq.client.consuming.queue_requests import PullResult
    from pocketmq.client.message import Message, MessageExt
    from pocketmq.client.pop_consumer import PopConsumer
    from pocketmq.client.producer import Producer
    from pocketmq.client.pull_consumer import PullConsumer
    from pocketmq.client.sending.outgoing import BatchError, SendResult
    from pocketmq.client.sending.request_reply import reply
    from pocketmq.client.sending.transaction import Transaction, TransactionState
    from pocketmq.errors import MQError, NameServerUnreachable, RequestTimeout
    from pocketmq.remoting.bodies import MessageQueue
    from pocketmq.remoting.dispatch import RemotingError
    from pocketmq.remoting.signature import Credentials
    from pocketmq.remoting.tls import TlsConfig

__version__ = "0.1.0"

__all__ = [
    "Access",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumerOptions",
    "BatchError",
    "BrokerUnreachable",
    "Credentials",
    "MQError",
    "Message",
    "MessageExt",
    "MessageQueue",
    "PopConsumer",
    "NameServerUnreachable",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PushConsumer",
    "ReconsumeLater",
    "RemotingError",
    "RequestTimeout",
    "SendResult",
    "TlsConfig",
    "Transaction",
    "TransactionState",
    "reply",
]

_NAMES = {
    "client.access": ("Access",),
    "client.client_instance": ("BrokerUnreachable",),
    "client.consumer": ("PushConsumer",),
    "client.consuming.consume_hook": ("ConsumeContext", "ConsumeHook"),
    "client.consuming.consumer_options": ("ConsumerOptions",),
    "client.consuming.consumption": ("ReconsumeLater",),
    "client.consuming.queue_requests": ("PullResult",),
    "client.message": ("Message", "MessageExt"),
    "client.pop_consumer": ("PopConsumer",),
    "client.producer": ("Producer",),
    "client.pull_consumer": ("PullConsumer",),
    "client.sending.outgoing": ("BatchError", "SendResult"),
    "client.sending.request_reply": ("reply",),
    "client.sending.transaction": ("Transaction", "TransactionState"),
    "errors": ("MQError", "NameServerUnreachable", "RequestTimeout"),
    "remoting.bodies": ("MessageQueue",),
    "remoting.dispatch": ("RemotingError",),
    "remoting.signature": ("Credentials",),
    "remoting.tls": ("TlsConfig",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import an exported name at its first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pocketmq' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"pocketmq.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
