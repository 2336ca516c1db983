import pytest

from pocketmq.broker.put.message_id import decode_message_id, encode_message_id
from pocketmq.remoting.hosts import pack_host


@pytest.mark.parametrize(
    ("host", "physical_offset", "text"),
    [
        ("127.0.0.1", 19143, "7F00000100002A9F0000000000004AC7"),
        ("::1", 2**40, "0000000000000000000000000000000100002A9F0000010000000000"),
    ],
)
def test_message_id_round_trip(host, physical_offset, text):
    packed = pack_host(host, 10911)
    assert encode_message_id(packed, physical_offset) == text
    assert decode_message_id(text) == (packed, physical_offset)


@pytest.mark.parametrize("text", ["", "7F000001", "7F00000100002A9F0000000000004AC", "Z" * 32, " " * 8 + "0" * 24])
def test_invalid_message_id_is_refused(text):
    with pytest.raises(ValueError, match="message id"):
        decode_message_id(text)
