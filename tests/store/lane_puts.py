"""Puts of ordinary messages by the compiled lane, for tests of the store without a broker (`broker.lane.sends`)."""

from pocketmq.lane import compiled_lane
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import encode_request
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.store.format.message import Message, PutResult, PutStatus
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.message_store import MessageStore
from tests.store.stores import HOST

_PROPERTIES = [b"KEYS", b"TAGS", b"UNIQ_KEY", b"NOTE"]


class SimulatedLane:
    """The lane of one open store, which knows some topics of three queues."""

    def __init__(self, store: MessageStore, topics: tuple[str, ...]) -> None:
        self._log = log = store.commit_log
        compiled, why = compiled_lane()
        assert compiled is not None, why
        sizes = (store.config.max_message_size, 1 << 24, 1 << 24)
        pieces, binary = [b""] * 5, (b"", b"")
        cells, properties = log.tail.queue_offsets.cells, (_PROPERTIES, _PROPERTIES)
        self._lane = compiled.Lane(cells, HOST, properties, b"CLUSTER\x01c", sizes, pieces, binary)
        for topic in topics:
            self._lane.learn(topic, [(topic, queue_id) for queue_id in range(3)], 3)
        log.tail.use_lane(self._lane)

    def put(self, message: Message) -> PutResult | None:
        """Put a message by the lane; None if it is not ordinary."""
        if (message.born_host, message.store_host) != (HOST, HOST):
            return None
        log, tail = self._log, self._log.tail
        header = SendMessageRequestHeaderV2(
            "g", message.topic, "d", 4, message.queue_id, message.sys_flag, message.born_timestamp_ms, message.flag,
            encode_properties(message.properties),
        )  # fmt: skip
        frame = b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, bytes(message.body), 1))
        now_ms, offset = max(log._clock.message_time_ms(), log.last_store_timestamp_ms), tail.end_offset
        room = log.plain_end - offset
        used, end_offset, _, _ = self._lane.serve(frame, 0, HOST, offset, room, now_ms, tail.unwritten, [])
        if not used:
            return None
        log.last_store_timestamp_ms = now_ms
        tail.end_offset, tail.has_units = end_offset, True
        if end_offset > tail.write_beyond:
            tail.write()
        queue_offset = tail.queue_offsets[message.topic, message.queue_id] - 1
        return PutResult(PutStatus.PUT_OK, offset, end_offset, queue_offset, now_ms, end_offset - offset)
