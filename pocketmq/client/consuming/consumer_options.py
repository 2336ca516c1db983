"""Settings of consumers that most programs leave as they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.client.consuming.allocation import AllocationStrategy, strategy_of
from pocketmq.client.consuming.consume_hook import ConsumeHook
from pocketmq.client.consuming.queue_requests import PULL_COUNT_MAX
from pocketmq.client.send_back import RECONSUME_MAX

DEFAULT_INSTANCE: Final = "DEFAULT"
"""Instance name of broadcasting clients, as in Java: their local offsets are found again after a restart."""


@dataclass(frozen=True)
class ConsumerOptions:
    """Settings of PushConsumer and PullConsumer; Java's name of each is in brackets."""

    allocation: str | AllocationStrategy = "AVG"
    """How the clients of a group share queues: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, or an object."""
    max_reconsume_times: int | None = None
    """Number of times a failed message is delivered again before it goes to the dead-letter topic (maxReconsumeTimes).

    None: the group's retryMaxTimes (16); for ordered consumers no limit."""
    suspend_ms: int = 1000
    """Time for which an ordered queue is suspended after a failure (suspendCurrentQueueTimeMillis)."""
    buffer_messages: int = 1000
    """Number of pulled messages that are not consumed yet, of all queues, above which pulling pauses."""
    buffer_bytes: int = 64 * 1024 * 1024
    """The same for the bytes of their bodies. A queue without such messages may always pull once."""
    pull_batch_size: int = PULL_COUNT_MAX
    """Maximum number of messages of one pull (pullBatchSize)."""
    auto_ack: bool = True
    """Whether `async for` acknowledges a message when the next one is asked for. False: call `ack` or `nack`."""
    release_timeout_s: float = 5.0
    """Time for which a queue that is given up waits for messages that `async for` has handed out; then they come again."""
    instance_name: str | None = None
    """Second part of the client id (instanceName); None: process id and a number, or DEFAULT if broadcasting."""
    offsets_folder: Path | None = None
    """Folder of the local offsets of broadcasting consumers; None: ~/.rocketmq_offsets."""
    hooks: tuple[ConsumeHook, ...] = ()
    """Called before and after each message."""
    trace: bool | str = False
    """True, or the trace topic, to send message traces of push and pop consumers."""

    def __post_init__(self) -> None:
        """Raise ValueError for a setting that is out of range."""
        strategy_of(self.allocation)
        for name in ("buffer_messages", "buffer_bytes", "pull_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("suspend_ms", "release_timeout_s", "max_reconsume_times"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, not {value}")

    @property
    def strategy(self) -> AllocationStrategy:
        """The allocation strategy."""
        return strategy_of(self.allocation)

    def shown(self) -> dict[str, str]:
        """Return the settings that tools show, under Java's names."""
        return {
            "allocateMessageQueueStrategy": self.strategy.name,
            "maxReconsumeTimes": str(RECONSUME_MAX if self.max_reconsume_times is None else self.max_reconsume_times),
            "pullBatchSize": str(self.pull_batch_size),
        }


DEFAULTS: Final = ConsumerOptions()
