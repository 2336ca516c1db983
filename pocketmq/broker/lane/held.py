"""HeldAnswers: answers of the compiled lane that wait for the sync of their records (SYNC_FLUSH)."""

import msgspec

from pocketmq.remoting.channel import Channel
from pocketmq.remoting.command import Buffer, Response, decode_header
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.remoting.headers.send import SendMessageResponseHeader


class HeldAnswers(msgspec.Struct):
    """The frames of answers to one read; `count` is their number."""

    channel: Channel
    frames: bytes
    count: int
    success: Response
    """The response with which they are held."""

    def complete(self, response: Response) -> None:
        """Send them as they are, with the code that `success` has got, or as refusals."""
        self.channel.deferred_removed(self.count)
        if response is self.success and not response.code:
            self.channel.send((self.frames,))
            return
        out: list[Buffer] = []
        for serialize_type, header, _ in FrameBuffer().feed(self.frames):
            command = decode_header(serialize_type, header)
            ids = command.header(SendMessageResponseHeader) if response is self.success else None
            Response(response.code, ids, remark=response.remark).encode_into(out, command.opaque, serialize_type)
        self.channel.send(out)
