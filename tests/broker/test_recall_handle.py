"""Recall handles: Apache's encoding, decoding, and refusal of anything else."""

import base64

import pytest

from pocketmq.remoting.handles.recall_handle import RecallHandle, decode_recall_handle

HANDLE = RecallHandle("T?>~", "broker-a", "1700000005001", "7F0000011D5C18B4AAC2CAFE0000")


def test_a_handle_is_apaches_text_in_url_safe_base64():
    text = HANDLE.encode()
    assert base64.urlsafe_b64decode(text) == b"v1 T?>~ broker-a 1700000005001 7F0000011D5C18B4AAC2CAFE0000"
    assert not set(text) & set("+/")
    assert decode_recall_handle(text) == HANDLE
    assert decode_recall_handle(text.rstrip("=")) == HANDLE


@pytest.mark.parametrize("raw", [b"v2 T b 1 k", b"v1 T b 1", b"v1 T  1 k", b"\xff" * 9, b""])
def test_modified_handle_is_refused(raw):
    with pytest.raises(ValueError, match="recall handle is invalid"):
        decode_recall_handle(base64.urlsafe_b64encode(raw).decode())


@pytest.mark.parametrize("text", ["a", "not base64!", "djE"])
def test_arbitrary_text_is_refused_as_handle(text):
    with pytest.raises(ValueError, match="recall handle is invalid"):
        decode_recall_handle(text)
