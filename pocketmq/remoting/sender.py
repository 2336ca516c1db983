"""Sender: in which name a client sends its requests."""

from dataclasses import dataclass
from typing import Final

from pocketmq.remoting.codes import LANGUAGE, VERSION
from pocketmq.remoting.signature import Credentials


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
