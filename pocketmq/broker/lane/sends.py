"""OrdinarySends: lets the compiled lane serve the sends at the front of a read that need no decision.

A send is *ordinary* if its topic exists, its answer need wait for nothing but the sync of its record (`AnswerGate`), and
no property makes it delayed, transactional or otherwise special. All others, and all other requests, take the Python path,
which would serve ordinary sends with the same result.
"""

import logging
from collections.abc import Iterable
from math import inf
from typing import Any, Final

from pocketmq.broker.handlers.send import RARE_PROPERTIES
from pocketmq.broker.lane.held import HeldAnswers
from pocketmq.broker.lane.template import MARKS, encoded, pieces
from pocketmq.broker.names import POP_CK, SYSTEM_PREFIX, WAIT
from pocketmq.broker.put.delivery_time import DELAYING_PROPERTIES, TIMER_OUT_MS
from pocketmq.broker.put.put import CLUSTER
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_WRITE
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.channels import Lane
from pocketmq.remoting.codes import ROCKETMQ, ResponseCode
from pocketmq.remoting.command import Buffer, Response
from pocketmq.remoting.headers.send import SendMessageResponseHeader
from pocketmq.remoting.layout import BINARY_FIXED_STRUCT
from pocketmq.store.format.properties import KEYS, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY

log = logging.getLogger("broker")

PLAIN_PROPERTIES: Final = frozenset(
    (
        KEYS, TAGS, UNIQ_KEY, WAIT, "BUYER_ID", "CORRELATION_ID", "INSTANCE_ID", "MQ2_FLAG", "MSG_REGION", "MSG_TYPE",
        "ORIGIN_MESSAGE_ID", "PUSH_REPLY_TIME", "REPLY_TO_CLIENT", "TRACE_ON", "TTL", "__SHARDINGKEY",
    )
) - RARE_PROPERTIES - {POP_CK, CLUSTER}  # fmt: skip
"""RocketMQ's own properties with which a message can be ordinary. Names with a lower-case letter that do not begin with an
underscore are users' own and ordinary, too; the lane takes no message with any other name."""
WAITED_PROPERTIES: Final = PLAIN_PROPERTIES | DELAYING_PROPERTIES | {CLUSTER, REAL_TOPIC, REAL_QID, TIMER_OUT_MS}
"""The same for the record of a message that waited for its time."""

_HOST_SIZE: Final = 8
_HEAD_SIZE: Final = 8
_PULL: Final = b'{"code":11,'


class OrdinarySends:
    """Serves reads with the compiled lane, of whose topics and place in the log it keeps account."""

    def __init__(
        self, services: Services, lane_class: Any, frame_size_max: int, header_size_max: int, serve_pulls: Lane
    ) -> None:
        """`lane_class`: `Lane` of the compiled module. The sizes are the limits of a frame and of its header. `serve_pulls`
        serves reads that begin with a pull."""
        self._services, self._serve_pulls = services, serve_pulls
        self._gate, self._turn, self._clock = services.gate, services.turn, services.clock
        self._lane_class = lane_class
        self._sizes = (services.store.config.max_message_size, frame_size_max, header_size_max)
        self._log = services.store.commit_log
        self._tail = self._log.tail
        self._known: set[str] = set()
        self._store_host, self._trace_on = b"", True
        self.lane: Any = None
        """The compiled lane, or None while it can serve nothing."""
        self._late_s = inf  # a send that has waited longer in its turn is refused
        self._checked_s = -inf  # start of the turn for which `_is_ready` holds
        self._is_ready = False
        self._renew()
        services.topics.topic_changed.subscribe(self._topic_changed)
        services.topics.rolled_back.subscribe(self._topics_changed)

    def serve(self, channel: Channel, data: bytes, start: int, out: list[Buffer]) -> int:
        """Serve the ordinary sends from `start` on, and append the answers to `out`. Return the bytes served."""
        if data.startswith(_PULL, start + _HEAD_SIZE):
            return self._serve_pulls(channel, data, start, out)
        gate = self._gate
        if (
            not (gate.is_open or gate.waits_for_sync)
            or channel.last_active - self._turn.began_s > self._late_s
            or not self._can_serve()
        ):
            return 0
        tail, commit_log, served, count = self._tail, self._log, 0, 0
        store_time_ms, answers = self.store_time_ms, out if gate.is_open else list[Buffer]()
        while True:
            offset = tail.end_offset
            used, end_offset, unknown, answered = self.lane.serve(
                data, start + served, channel.host_bytes, offset, commit_log.plain_end - offset, store_time_ms,
                tail.unwritten, answers,
            )  # fmt: skip
            count += answered
            if used:
                self.appended(end_offset, store_time_ms)
                served += int(used)
            if unknown is None or not self.learn(unknown):
                break
        if served and answers is not out:
            self._hold(channel, answers, count)
        return served

    def _hold(self, channel: Channel, answers: list[Buffer], count: int) -> None:
        """Hold answers until the log is synced up to its present end."""
        end_offset = self._tail.end_offset
        self._services.putter.note_put(end_offset)
        if count:
            channel.deferred_added(count)
            success = Response(ResponseCode.SUCCESS)
            self._gate.when_synced(end_offset, success, HeldAnswers(channel, b"".join(answers), count, success))

    def serve_ready(self, sockets: Any, now_s: float) -> Any:
        """Serve the ordinary sends of the ready `sockets` up to one for which something else must be done; return that."""
        tail, commit_log = self._tail, self._log
        offset, late_s = tail.end_offset, self._turn.began_s + self._late_s - now_s
        if not self._gate.is_open or late_s < 0 or offset > tail.write_beyond or not self._can_serve():
            return sockets.next()
        store_time_ms = self.store_time_ms
        end_offset, found = sockets.serve(
            self.lane, offset, commit_log.plain_end - offset, store_time_ms, tail.write_beyond, late_s, tail.unwritten
        )
        if end_offset != offset:
            self.appended(end_offset, store_time_ms)
        return found

    @property
    def store_time_ms(self) -> int:
        """The store time of records that are added now."""
        return max(self._clock.message_time_ms(), self._log.last_store_timestamp_ms)

    def appended(self, end_offset: int, store_time_ms: int) -> None:
        """Note the records that the lane has added to the end of the log, and write them if they are many."""
        tail, self._log.last_store_timestamp_ms = self._tail, store_time_ms
        tail.end_offset, tail.has_units = end_offset, True
        if end_offset > tail.write_beyond:
            try:
                tail.write()
            except OSError:  # requests are served all the same; the Python path meets the same error
                log.exception("records of the lane cannot be written yet")

    def _can_serve(self) -> bool:
        """Return whether no send is refused at present."""
        began_s = self._turn.began_s
        if began_s < self._tail.busy_until_s:
            return False
        if began_s != self._checked_s:
            self._checked_s, self._is_ready = began_s, self._check()
        return self._is_ready

    def _check(self) -> bool:
        """Return whether sends need no decision in this turn, and prepare the lane for it."""
        services = self._services
        config = services.config
        self._late_s = config.wait_time_mills_in_send_queue / 1000 if config.broker_fast_failure_enable else inf
        if services.store_host is not self._store_host or config.trace_on != self._trace_on:
            self._renew()
        is_usual = not (config.trace_topic_enable or config.start_accept_send_request_time_stamp)
        return is_usual and self.lane is not None and config.broker_permission & PERM_WRITE != 0

    def _renew(self) -> None:
        """Make a new lane with the present template of answers. A store host with an IPv6 address gets no lane."""
        services, tail = self._services, self._tail
        tail.use_lane(None)
        services.stats.use_lane(None)
        self._store_host, self._trace_on, self.lane = services.store_host, services.config.trace_on, None
        self._known.clear()
        if len(services.store_host) != _HOST_SIZE:
            return
        config = services.config
        added = f"{CLUSTER}\x01{config.broker_cluster_name}".encode()
        properties = tuple([name.encode() for name in names] for names in (PLAIN_PROPERTIES, WAITED_PROPERTIES))
        self.lane = self._lane_class(
            tail.queue_offsets.cells, services.store_host, properties, added, self._sizes,
            _json_template(services.store_host, config.region_id, config.trace_on),
            _binary_template(config.region_id, config.trace_on),
        )  # fmt: skip
        tail.use_lane(self.lane)
        services.stats.use_lane(self.lane.take_counts)

    def learn(self, topic: str) -> bool:
        """Name a topic to the lane. Return False if it does not exist: the Python path creates it, or refuses the send."""
        if self._services.topics.table.get(topic) is None:
            return False
        self._known.add(topic)
        self.lane.learn(topic, *self._queues(topic))
        return True

    def _queues(self, topic: str) -> tuple[list[tuple[str, int]], int]:
        """Return the keys of a topic's queues, none if its messages are never ordinary, and the number of those read."""
        services = self._services
        config = services.topics.table.get(topic)
        if (
            config is None
            or config.topic_filter_type != "SINGLE_TAG"
            or topic.startswith(("%", SYSTEM_PREFIX))
            or topic in services.topics.not_allowed_send_topics
            or not self._log.is_plain_topic(topic)
        ):
            return [], 0
        count = max(config.write_queue_nums, config.read_queue_nums)
        return [(topic, queue_id) for queue_id in range(count)], config.read_queue_nums

    def _topic_changed(self, topic: str) -> None:
        if topic in self._known:
            self.lane.learn(topic, *self._queues(topic))

    def _topics_changed(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._topic_changed(topic)


def _json_template(store_host: bytes, region_id: str, trace_on: bool) -> list[bytes]:
    """Return the pieces of an answer in JSON around physical offset, queue id, queue offset and opaque."""
    physical_offset, queue_id, queue_offset, opaque = "0123456789ABCDEF", *MARKS[:3]
    message_id = store_host.hex().upper() + physical_offset
    header = SendMessageResponseHeader(message_id, int(queue_id), int(queue_offset), None, region_id, trace_on)
    response = Response(ResponseCode.SUCCESS, header)
    return pieces(response, int(opaque), (physical_offset, queue_id, queue_offset, opaque))


def _binary_template(region_id: str, trace_on: bool) -> tuple[bytes, bytes]:
    """Return what begins and what ends an answer in the binary serialisation: before the opaque, after the queue offset."""
    header = SendMessageResponseHeader("", 0, int(MARKS[0]), None, region_id, trace_on)
    text = encoded(Response(ResponseCode.SUCCESS, header), 0, ROCKETMQ)
    return text[: BINARY_FIXED_STRUCT.size - 8], text.partition(MARKS[0].encode())[2]
