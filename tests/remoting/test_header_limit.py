"""The limit of a header: what is above it closes the connection before it is decoded."""

import pytest

from remoting.frame import FrameBuffer, FrameError, frame_head


def test_a_header_at_the_limit_is_a_frame_and_a_longer_one_is_refused_with_its_key():
    buffer = FrameBuffer(header_size_max=1000)
    ((_, header, body),) = buffer.feed(frame_head(0, 1000, 5) + b"h" * 1000 + b"body!")
    assert (len(header), body) == (1000, b"body!")
    with pytest.raises(FrameError, match=r"header of 1001 bytes, limit \(maxHeaderBytes\) 1000"):
        buffer.feed(frame_head(0, 1001, 0) + b"h" * 1001)


def test_a_long_header_is_refused_before_its_bytes_come():
    with pytest.raises(FrameError, match="maxHeaderBytes"):
        FrameBuffer(header_size_max=1000).feed(frame_head(0, 2000, 0))
