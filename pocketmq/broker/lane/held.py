"""HeldAnswers: answers of the compiled lane that wait for the sync of their records (SYNC_FLUSH)."""

import logging
from collections.abc import Sequence

import msgspec

from pocketmq.remoting.channel import Channel
from pocketmq.remoting.command import Buffer, Response, decode_header
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.remoting.headers.send import SendMessageResponseHeader

log = logging.getLogger("remoting")


class HeldAnswers(msgspec.Struct):
    """The frames of answers to one read; `count` is their number."""

    channel: Channel
    frames: bytes
    count: int
    success: Response
    """The response with which they are held."""

    def complete(self, response: Response) -> None:
        """Send them as they are, with the code that `success` has got, or as refusals.

        Never raises, like `Deferred.complete`: the caller completes the answers to many clients.
        """
        try:
            self.channel.deferred_removed(self.count)
            self.channel.send(self._frames_with(response))
        except Exception:
            log.exception("closing %s: answers to it cannot be sent", self.channel)
            self.channel.close()

    def _frames_with(self, response: Response) -> Sequence[Buffer]:
        if response is self.success and not response.code:
            return (self.frames,)
        out: list[Buffer] = []
        for serialize_type, header, _ in FrameBuffer().feed(self.frames):
            command = decode_header(serialize_type, header)
            ids = command.header(SendMessageResponseHeader) if response is self.success else None
            Response(response.code, ids, remark=response.remark).encode_into(out, command.opaque, serialize_type)
        return out
