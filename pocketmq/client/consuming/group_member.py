"""A client as member of a consumer group: the questions that brokers ask it (client/broker_requests)."""

from typing import Any

from pocketmq.client.broker_requests import ConsumeMessageDirectlyResult
from pocketmq.client.consuming.held_queues import HeldQueues
from pocketmq.client.consuming.rebalancing import Rebalancing
from pocketmq.client.message import MessageExt, now_ms
from pocketmq.client.running_info import running_info
from pocketmq.remoting.bodies import ConsumerData, MessageQueue


class GroupMember:
    """Base of consumers that pull from allocated queues."""

    def __init__(self, queues: HeldQueues, is_broadcasting: bool = False) -> None:
        self.instance, self.group = queues.requests.instance, queues.requests.group
        self._queues, self.rebalancing = queues, Rebalancing(queues, is_broadcasting)
        self._started_ms = now_ms()
        self.instance.consumer_data = self._consumer_data
        self.instance.member = self

    def _consumer_data(self) -> ConsumerData:
        """Return the group's entry in heartbeats."""
        raise NotImplementedError

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the consumer offsets of the allocated queues of a topic, as far as they are known."""
        works = (work for work in self._queues.held.values() if work.queue.topic == topic and work.consumer_offset >= 0)
        return {work.queue: work.consumer_offset for work in works}

    def running_info(self, with_stacks: bool) -> dict[str, Any]:
        """Return ConsumerRunningInfo, the answer of GET_CONSUMER_RUNNING_INFO."""
        settings = {
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in self.instance.routes.namesrv_addresses),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            **self._queues.options.shown(),
            **self._settings(),
        }
        works = self._queues.held.values()
        return running_info(self._consumer_data(), settings, works, self._queues.rates, with_stacks)

    def _settings(self) -> dict[str, str]:
        """Return further settings that tools show, under Java's names."""
        return {"PROP_CONSUMEORDERLY": "false", "PROP_THREADPOOL_CORE_SIZE": "1"}

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Give one message to the listener of its topic; offsets do not change. Raises LookupError without a listener."""
        raise LookupError(f"this consumer has no listener for topic {message.topic}")
