"""Signatures compared with those of Apache's client."""

import base64
import hmac

import pytest

from pocketmq.remoting.codes import JSON, ROCKETMQ
from pocketmq.remoting.command import decode_header, encode_request
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader
from pocketmq.remoting.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, UNIQUE_KEY_QUERY, Credentials, Sender, Signer

# Fields of a send signed by AclClientRPCHook of 4.9.4 with SessionCredentials("RocketMQ", "12345678", "token").
FIELDS = {
    "a": "orders", "b": "topicD", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795322673990", "h": "0",
    "i": "KEYS\x01schlüssel-键-😀\x02WAIT\x01true\x02", "j": "0", "k": "false", "m": "false", "SecurityToken": "token",
    "AccessKey": "RocketMQ", "Signature": "EI6KX7fZM1F15HOoMFWbCv/TS48=",
}  # fmt: skip
BODY = "körper".encode()


def test_signature_equals_the_java_clients():
    assert Signer(b"12345678").sign(FIELDS, BODY) == FIELDS[SIGNATURE].encode()
    assert Signer(b"12345678").is_signed(FIELDS, BODY)


def test_long_key_is_hashed_as_in_java():
    assert Signer(b"k" * 100).sign({}, b"abc") == b"JgMPaGodVl4CR2fmLJYKZDSFVEI="


def test_signed_fields_equal_the_java_clients():
    unsigned = {name: value for name, value in FIELDS.items() if name not in (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)}
    assert Credentials("RocketMQ", "12345678", "token").signed(unsigned, BODY) == FIELDS


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
@pytest.mark.parametrize("header", [None, ConsumerGroupRequestHeader("billing")])
@pytest.mark.parametrize("body", [b"", BODY, memoryview(BODY), [BODY[:3], memoryview(BODY)[3:]]])
def test_signature_is_valid_in_both_serialisations(serialize_type, header, body):
    credentials = Credentials("RocketMQ", "12345678")
    sent = encode_request(7, header, body, 1, serialize_type=serialize_type, sender=Sender(credentials=credentials))
    ((kind, head, came),) = FrameBuffer().feed(b"".join(map(bytes, sent)))
    ext = decode_header(kind, head).ext
    assert Signer(b"12345678").is_signed(ext, came)
    assert ext.keys() == {ACCESS_KEY, SIGNATURE} | (set() if header is None else {"consumerGroup"})


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_signature_is_hmac_sha1(size):
    key = bytes(range(7, 7 + size % 200)) or b""
    expected = base64.b64encode(hmac.digest(key, b"value" + BODY, "sha1"))
    assert Signer(key).sign({"name": "value"}, BODY) == expected


def test_unique_key_query_flag_need_not_be_signed():
    assert Signer(b"12345678").is_signed({**FIELDS, UNIQUE_KEY_QUERY: "true"}, BODY)


def test_unique_key_query_flag_may_be_signed():
    """4.9.4's client signs it, although 4.9.4's broker does not expect that."""
    # The values in the order of the names: AccessKey, SecurityToken, _UNIQUE_KEY_QUERY, key.
    fields = {ACCESS_KEY: "RocketMQ", SECURITY_TOKEN: "token", UNIQUE_KEY_QUERY: "false", "key": "order-1"}
    digest = hmac.digest(b"12345678", b"RocketMQtokenfalseorder-1", "sha1")
    signed = {**fields, SIGNATURE: base64.b64encode(digest).decode()}
    assert Signer(b"12345678").is_signed(signed, b"")
    assert not Signer(b"12345678").is_signed({**signed, UNIQUE_KEY_QUERY: "true"}, b"")
    assert not Signer(b"12345679").is_signed(signed, b"")


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({**FIELDS, "b": "topicE"}, BODY),
        ({**FIELDS, "more": "1"}, BODY),
        (FIELDS, BODY + b"!"),
        ({**FIELDS, SIGNATURE: ""}, BODY),
        ({**FIELDS, SIGNATURE: "ключ"}, BODY),
        ({name: value for name, value in FIELDS.items() if name != SIGNATURE}, BODY),
    ],
)
def test_changed_field_or_body_is_detected(fields, body):
    assert not Signer(b"12345678").is_signed(fields, body)
