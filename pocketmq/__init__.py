"""PocketMQ: a RocketMQ-compatible name server and broker, and the asyncio client exported here.

The names in `__all__` are the public API. They are imported at first use, so that `import pocketmq`, which every command and
server executes, does not load the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.client.access import Access
    from pocketmq.client.consumer import PushConsumer
    from pocketmq.client.message import Message, MessageExt
    from pocketmq.client.producer import Producer, SendResult
    from pocketmq.client.pull_consumer import PullConsumer, PullResult
    from pocketmq.remoting.bodies import MessageQueue
    from pocketmq.remoting.dispatch import RemotingError
    from pocketmq.remoting.signature import Credentials
    from pocketmq.remoting.tls import TlsConfig

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Credentials",
    "Message",
    "MessageExt",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PushConsumer",
    "RemotingError",
    "SendResult",
    "TlsConfig",
]

_MODULES = {
    "Access": "client.access",
    "Credentials": "remoting.signature",
    "Message": "client.message",
    "MessageExt": "client.message",
    "MessageQueue": "remoting.bodies",
    "Producer": "client.producer",
    "PullConsumer": "client.pull_consumer",
    "PullResult": "client.pull_consumer",
    "PushConsumer": "client.consumer",
    "RemotingError": "remoting.dispatch",
    "SendResult": "client.producer",
    "TlsConfig": "remoting.tls",
}


def __getattr__(name: str) -> Any:
    """Import an exported name at its first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pocketmq' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"pocketmq.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
