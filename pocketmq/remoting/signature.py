"""Signatures of requests, which prove the sender and the integrity of a request.

    signature = base64(HMAC-SHA1(secret key, the values of all fields in order of their names, then the body))

The fields are those of `extFields`, including AccessKey and SecurityToken but not Signature. Neither the request code nor
opaque is signed, and there is no timestamp: an eavesdropper can replay a request (TLS prevents eavesdropping).
"""

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pocketmq.remoting.codes import LANGUAGE, VERSION

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Field that brokers of 4.9 leave out of the signature, as clients before 4.9.4 do; 4.9.4's client signs it, too."""
_BLOCK_SIZE: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class Signer:
    """Signs with one secret key. The two key blocks of HMAC are hashed once, which makes it faster than hmac.digest."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: bytes) -> None:
        key = secret_key if len(secret_key) <= _BLOCK_SIZE else hashlib.sha1(secret_key).digest()
        block = key.ljust(_BLOCK_SIZE, b"\0")
        self._inner, self._outer = hashlib.sha1(block.translate(_INNER)), hashlib.sha1(block.translate(_OUTER))

    def digest(self, text: bytes) -> bytes:
        """Return the HMAC of a text, which gRPC clients sign."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.digest()

    def sign(self, ext: Mapping[str, str], body: bytes, left_out: Collection[str] = (SIGNATURE, UNIQUE_KEY_QUERY)) -> bytes:
        """Return the signature of a request with these fields and this body, in base64, as brokers of 4.9 expect it."""
        text = "".join(map(ext.__getitem__, sorted(ext.keys() - left_out))).encode()
        return b2a_base64(self.digest(b"".join((text, body))), newline=False)

    def is_signed(self, ext: Mapping[str, str], body: bytes) -> bool:
        """Return whether the signature is correct, with or without UNIQUE_KEY_QUERY. Compares in constant time."""
        signature = ext.get(SIGNATURE, "").encode()
        if hmac.compare_digest(self.sign(ext, body), signature):
            return True
        return UNIQUE_KEY_QUERY in ext and hmac.compare_digest(self.sign(ext, body, (SIGNATURE,)), signature)


@dataclass(frozen=True)
class Credentials:
    """Account that signs requests."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    signer: Signer | None = field(default=None, repr=False, compare=False)
    """Signer of the account, in place of its secret key."""

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields of a request with access key, token and signature."""
        fields = {**ext, ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        fields[SIGNATURE] = self._signer.sign(fields, body).decode()
        return fields

    @cached_property
    def _signer(self) -> Signer:
        return self.signer or Signer(self.secret_key.encode())


@dataclass(frozen=True)
class Sender:
    """Language and version that requests name, and the account that signs them; None: they are not signed.

    `peer`: host and port that a server in the same process sees, such as those of a gRPC client.
    """

    language: str = LANGUAGE
    version: int = VERSION
    credentials: Credentials | None = None
    peer: tuple[str, int] = ("127.0.0.1", 0)


OURSELVES: Final = Sender()
