"""The seal (checksum and size) of documents in config/: detection and correction of damage, and edits by hand."""

import json

import pytest

from pocketmq.store.format.config_document import (
    SEAL_KEY,
    check_seal,
    decode_document,
    encode_document,
    is_size_kept,
    repaired,
    seal_of,
    sealed,
)
from tests.golden import linear
from tests.golden.linear import assert_linear

ROWS = {f"Topic{n}": {"topicName": f"Topic{n}", "perm": 6, "readQueueNums": 8} for n in range(3)}
DOCUMENT = {"dataVersion": {"counter": 3, "timestamp": 1_700_000_000_000}, "topicConfigTable": ROWS}


@pytest.mark.parametrize("document", [{}, {"offsetTable": {}}, DOCUMENT, {"a": "é\x01"}, {"offsetTable": {"T@g": {0: 1}}}])
def test_sealing_a_document_only_adds_the_seal(document: dict[str, object]) -> None:
    data = sealed(encode_document(document))
    found = decode_document(data)
    assert check_seal(found) is True
    assert found.pop(SEAL_KEY) == seal_of(document)
    assert found == json.loads(encode_document(document)) and check_seal(found) is None


def test_every_flipped_bit_is_detected_and_corrected() -> None:
    good = sealed(encode_document(DOCUMENT))
    for bit in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        assert repaired(bytes(damaged)) == (good, bit // 8), bit


def test_manual_edit_is_distinguished_from_damage() -> None:
    data = sealed(encode_document(DOCUMENT))
    edited = data.replace(b'"perm": 6', b'"perm": 16', 1)
    assert check_seal(decode_document(edited)) is False and repaired(edited) is None and not is_size_kept(edited)
    damaged = data.replace(b"Topic1", b"Tropic", 1)
    assert check_seal(decode_document(damaged)) is False and repaired(damaged) is None and is_size_kept(damaged)
    for indent in (None, 1, 2, 3):
        assert repaired(json.dumps(decode_document(edited), indent=indent).encode() + b"\n") is None
    reformatted = json.dumps(decode_document(data)).encode()
    assert check_seal(decode_document(reformatted)) is True, "white space does not affect the seal"


def test_flipped_bit_is_located_in_linear_time() -> None:
    def cpu_s(count: int) -> float:
        data = bytearray(sealed(encode_document({"t": {f"T{n}": {"perm": 6} for n in range(count)}})))
        data[1] ^= 1
        assert repaired(bytes(data)) is not None
        return linear.cpu_s(lambda: repaired(bytes(data)))

    cpu_s(1000)
    assert cpu_s(8000) < 12 * cpu_s(2000)


def test_lone_surrogate_is_replaced_by_a_question_mark() -> None:
    document = decode_document(rb'{"a\udc00": "\ud800x", "pair": "\ud83d\ude00"}')
    assert document == {"a?": "?x", "pair": "\U0001f600"}
    assert decode_document(encode_document(document)) == document


def test_unterminated_string_is_detected_in_linear_time() -> None:
    def read(text: str) -> None:
        with pytest.raises(ValueError):
            decode_document(text.encode())

    assert_linear(read, lambda count: '{"' + '\\"' * count, 4_000)
    assert_linear(read, lambda count: '{"a' + "\\" * (2 * count + 1), 4_000)
