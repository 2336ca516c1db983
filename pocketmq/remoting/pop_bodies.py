"""Bodies of the requests about pop consumption and about the assignment of queues to clients."""

import msgspec

from pocketmq.remoting.bodies import Body, MessageQueue


class BatchAck(Body):
    """Acknowledgements of messages popped together from one queue. Bit n of `b` is the message at queue offset `so` + n.

    The names are those on the wire: `c` group, `t` topic, `r` kind of topic (0 `t` itself, 1 or 2 its retry topic), `so`
    start offset, `q` queue, `rq` revive queue, `pt` pop time, `it` invisible time.
    """

    c: str
    t: str
    r: str
    so: int
    q: int
    rq: int
    pt: int
    it: int
    b: bytes
    """Little-endian; base64 on the wire."""


class BatchAckMessageRequestBody(Body):
    """BATCH_ACK_MESSAGE."""

    broker_name: str = ""
    acks: list[BatchAck] = msgspec.field(default_factory=list)


class QueryAssignmentRequestBody(Body):
    """QUERY_ASSIGNMENT: request for the queues assigned to a client."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body):
    """A queue and its mode: PULL or POP."""

    message_queue: MessageQueue
    mode: str


class QueryAssignmentResponseBody(Body):
    """Answer of QUERY_ASSIGNMENT. None: the client keeps its current queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class MessageRequestMode(Body):
    """SET_MESSAGE_REQUEST_MODE. `pop_share_queue_num`: number of other clients whose queues are popped too; 0: all."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0
