"""Bodies of the requests about popping, and about who consumes which queues."""

import msgspec

from pocketmq.remoting.bodies import Body, MessageQueue


class BatchAck(Body):
    """Acknowledgements within one pop of a queue. `b` has a bit for each message: bit n is queue offset `so` + n.

    The names are the wire's: `c` group, `t` topic, `r` which retry topic, `so` start offset, `q` queue, `rq` revive queue,
    `pt` pop time, `it` invisible time.
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
    """QUERY_ASSIGNMENT: which queues are a client's?"""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body):
    """A queue, and whether it is pulled from or popped from."""

    message_queue: MessageQueue
    mode: str


class QueryAssignmentResponseBody(Body):
    """None: the client keeps what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class MessageRequestMode(Body):
    """SET_MESSAGE_REQUEST_MODE. `pop_share_queue_num`: how many neighbours' queues a client pops from too; 0 is all."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0
