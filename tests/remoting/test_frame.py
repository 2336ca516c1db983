"""FrameBuffer finds the same frames however the bytes are split."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.frame import FrameBuffer, FrameError, frame_head
from pocketmq.remoting.layout import FRAME_SIZE_MAX, FrameHead
from tests.remoting.recordings import CLIENTS, recorded

TABLE = [
    (b"\0\0\0\4\0\0\0\0", (0, b"", b"")),
    (b"\0\0\0\6\0\0\0\2{}", (0, b"{}", b"")),
    (b"\0\0\0\7\0\0\0\2{}x", (0, b"{}", b"x")),
    (b"\0\0\0\5\1\0\0\0x", (1, b"", b"x")),
    (b"\0\0\0\6\x7f\0\0\1ab", (127, b"a", b"b")),
]


@pytest.mark.parametrize(("data", "frame"), TABLE)
def test_whole_frame(data, frame):
    assert FrameBuffer().feed(data) == [frame]


@pytest.mark.parametrize(("data", "frame"), TABLE)
def test_frame_received_byte_by_byte(data, frame):
    frames = FrameBuffer()
    got = [found for position in range(len(data)) for found in frames.feed(data[position : position + 1])]
    assert got == [frame]


@pytest.mark.parametrize(("data", "frame"), TABLE)
def test_frame_followed_by_an_invalid_one(data, frame):
    frames = FrameBuffer()
    assert frames.feed(data + b"\xff\xff") == [frame]
    with pytest.raises(FrameError, match="limit 16777216"):
        frames.feed(b"\xff" * 6)


@given(st.lists(st.sampled_from(TABLE), max_size=8), st.lists(st.integers(1, 40), max_size=30))
def test_any_split_of_the_stream_gives_the_same_frames(rows, cuts):
    stream = b"".join(data for data, _ in rows)
    frames, got, position = FrameBuffer(), [], 0
    for size in [*cuts, len(stream)]:
        got += frames.feed(stream[position : position + size])
        position += size
    assert got == [frame for _, frame in rows]


@pytest.mark.parametrize("client", CLIENTS)
def test_recorded_streams_received_in_small_pieces(client):
    stream = b"".join(row.data for row in recorded(client))
    frames = FrameBuffer()
    got = [frame for position in range(0, len(stream), 97) for frame in frames.feed(stream[position : position + 97])]
    assert [len(body) for _, _, body in got] == [row.read["bodyLen"] for row in recorded(client)]


def test_largest_frame_is_accepted_and_one_byte_more_is_refused():
    head = frame_head(0, 2, FRAME_SIZE_MAX - 10)
    frames = FrameBuffer()
    assert frames.feed(head) == []
    with pytest.raises(FrameError, match=f"frame of {FRAME_SIZE_MAX + 1} bytes, limit {FRAME_SIZE_MAX}"):
        FrameBuffer().feed(frame_head(0, 2, FRAME_SIZE_MAX - 9))


@pytest.mark.parametrize("length", [0, 3, 2**31, 2**32 - 1])
def test_length_out_of_range_is_refused_before_the_frame_is_received(length):
    with pytest.raises(FrameError):
        FrameBuffer().feed(struct.pack(">II", length, 0))


def test_header_longer_than_its_frame_is_refused():
    with pytest.raises(FrameError, match="header of 9 bytes does not fit into a frame of 12 bytes"):
        FrameBuffer().feed(struct.pack(">II", 8, 9))


@given(st.integers(0, 255), st.integers(0, 2**20), st.integers(0, 2**20))
def test_encoded_frame_head_matches_the_declaration(serialize_type, header_length, body_length):
    parsed = FrameHead.parse(frame_head(serialize_type, header_length, body_length))
    assert (parsed.length, parsed.serialize_type, parsed.header_length) == (
        4 + header_length + body_length,
        serialize_type,
        header_length,
    )


@given(
    st.lists(st.sampled_from(TABLE), max_size=40),
    st.lists(st.integers(1, 90), max_size=30),
    st.integers(1, 5),
    st.booleans(),
)
def test_frames_are_split_a_few_at_a_time(rows, cuts, frames_max, is_fed_early):
    stream = b"".join(data for data, _ in rows)
    frames, got, position = FrameBuffer(frames_max=frames_max), [], 0
    for size in [*cuts, len(stream)]:
        found = frames.feed(stream[position : position + size])
        position += size
        while found:
            assert len(found) <= frames_max
            got += found
            left = frames.unsplit_frames()
            found = [] if is_fed_early else frames.split()
            assert is_fed_early or left[: len(found)] == found
    while found := frames.split():
        got += found
    assert got == [frame for _, frame in rows] and frames.held == 0


def test_an_invalid_frame_is_found_after_those_before_it_are_split():
    frames = FrameBuffer(frames_max=1)
    data, frame = TABLE[2]
    assert frames.feed(data * 2 + b"\xff" * 8) == [frame]
    assert frames.unsplit_frames() == [] and frames.split() == [frame]
    with pytest.raises(FrameError, match="limit 16777216"):
        frames.split()
