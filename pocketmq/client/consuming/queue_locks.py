"""Locks of queues at the brokers: an ordered consumer has a queue only while its broker has locked it for this client."""

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from pocketmq.client.client_instance import ClientInstance
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, MessageQueue, decode_body, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError

log = logging.getLogger("client")

RENEW_LOCKS_S: Final = 20.0


class QueueLocks:
    """The locks of one client in one group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance, self._group = instance, group

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock queues, or renew their locks; return those locked, and those refused. Others' brokers did not answer."""
        locked, refused = set[MessageQueue](), set[MessageQueue]()
        for broker_name, asked in _by_broker(queues).items():
            try:
                answer = await self._instance.call(broker_name, RequestCode.LOCK_BATCH_MQ, None, self._body(asked))
                granted = decode_body(LockOkBody, answer.body).lock_ok_mq_set
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                log.warning("locking queues of %s at broker %s failed: %s", self._group, broker_name, failure)
                continue
            locked |= asked.intersection(granted)
            refused |= asked.difference(granted)
        return locked, refused

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Free queues for other clients. A lock that cannot be freed expires."""
        for broker_name, asked in _by_broker(queues).items():
            try:
                await self._instance.call(broker_name, RequestCode.UNLOCK_BATCH_MQ, None, self._body(asked))
            except (OSError, TimeoutError, RemotingError) as failure:
                log.warning("unlocking queues of %s at broker %s failed: %s", self._group, broker_name, failure)

    def _body(self, queues: set[MessageQueue]) -> bytes:
        return encode_body(LockBatchBody(self._group, self._instance.client_id, list(queues)))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, set[MessageQueue]]:
    found = defaultdict[str, set[MessageQueue]](set)
    for queue in queues:
        found[queue.broker_name].add(queue)
    return found
