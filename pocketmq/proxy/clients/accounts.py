"""Accounts of gRPC clients: the `authorization` metadata, checked and turned into credentials for the client's requests.

    MQv2-HMAC-SHA1 Credential=ACCESS_KEY[/REGION][/SERVICE], SignedHeaders=x-mq-date-time, Signature=HEX

The signature is the HMAC of the metadata `x-mq-date-time`. Requests to brokers are then signed by the same account, so that
brokers decide what it may do, as for any other client.
"""

import hmac
import re
from collections.abc import Callable, Mapping

from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal
from pocketmq.remoting.signature import Credentials, Signer
from pocketmq.runtime.peer_text import clipped

SignerOf = Callable[[str], Signer | None]
"""Returns the signer of an access key, None for an unknown one."""
_FORM = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=(?P<key>[^/,\s]+)[^,]*,\s*SignedHeaders=(?P<signed>[^,\s]+)\s*,\s*Signature=(?P<hex>[0-9A-Fa-f]{40})"
)


def credentials_of(metadata: Mapping[str, str], signer_of: SignerOf | None) -> Credentials | None:
    """Return the credentials of a call's account; None without access control, or for a call that is not signed.

    Raises Refusal for a signature that is invalid.
    """
    if signer_of is None:
        return None
    text = metadata.get("authorization")
    if not text:
        return None
    found = _FORM.fullmatch(text.strip()) if len(text) < 1000 else None
    if found is None:
        raise Refusal(pb.UNAUTHORIZED, f"authorization {clipped(text)!r} is not of the form of MQv2-HMAC-SHA1")
    date_time = metadata.get("x-mq-date-time", "")
    if found["signed"].lower() != "x-mq-date-time" or not date_time:
        raise Refusal(pb.UNAUTHORIZED, "authorization must sign the metadata x-mq-date-time")
    signer = signer_of(found["key"])
    if signer is None:
        raise Refusal(pb.UNAUTHORIZED, f"no account has the access key {clipped(found['key'])}")
    if not hmac.compare_digest(signer.digest(date_time.encode()), bytes.fromhex(found["hex"])):
        raise Refusal(pb.UNAUTHORIZED, f"Check signature failed for accessKey={clipped(found['key'])}")
    return Credentials(found["key"], "", signer=signer)
