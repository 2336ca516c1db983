"""Header blocks of HTTP/2: the examples of RFC 7541, and blocks that are none."""

import random

import pytest

from bench.hostile import http2
from pocketmq.proxy.http2.hpack import BadBlock, Decoder
from pocketmq.proxy.http2.huffman import decoded


def test_huffman_strings_are_those_of_the_rfc():
    assert decoded(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")) == b"www.example.com"
    assert decoded(bytes.fromhex("9d29ad171863c78f0b97c8e9ae82ae43d3")) == b"https://www.example.com"
    for wrong in (b"\xff" * 4, bytes.fromhex("f1e3c2e5f23a6ba0ab90f4"), b"\xff\xff"):
        with pytest.raises(ValueError, match="Huffman"):
            decoded(wrong)


def test_header_blocks_are_those_of_the_rfc():
    """RFC 7541, C.4: three requests of one connection, whose table is used by the later ones."""
    decoder = Decoder()
    base = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")]
    assert decoder.decode(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"), 4096) == base
    more = [*base, (b"cache-control", b"no-cache")]
    assert decoder.decode(bytes.fromhex("828684be5886a8eb10649cbf"), 4096) == more
    third = decoder.decode(bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"), 4096)
    assert third is not None
    assert third[-1] == (b"custom-key", b"custom-value")


def test_a_block_that_names_a_large_field_thousands_of_times_is_not_decoded_to_its_end():
    decoder = Decoder()
    with pytest.raises(BadBlock):
        decoder.decode(encoded_kept(b"x", b"y" * 4000) + b"\xbe" * 15_000, 16_384)
    assert Decoder().decode(encoded_kept(b"x", b"y" * 4000) + b"\xbe" * 10, 16_384) is None


def encoded_kept(name, value):
    return http2.field(name.decode(), value.decode(), is_kept=True)


def test_random_blocks_are_decoded_or_refused():
    rng = random.Random("blocks")
    for _ in range(3000):
        try:
            Decoder().decode(rng.randbytes(rng.randrange(80)), 16_384)
        except BadBlock:
            continue
