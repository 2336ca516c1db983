"""Recordings of commands of Apache's mqadmin 4.9.4: what was printed, and the servers' answers, to be replayed.

`tests/golden/mqadmin.jsonl.gz` has one command a line: name, arguments, stdout, error (`CODE: ...`), and frames
[request code, request fields, response code, remark, response fields, body in base64].
"""

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader, ext_map

_FILE = Path(__file__).parent.parent / "golden" / "mqadmin.jsonl.gz"
_DECIDING = ("topic", "group", "groupName", "consumerGroup", "producerGroup", "queueId", "queueOffset", "clientId")
_DECIDING += ("statsName", "statsKey", "offset", "key", "index", "timestamp", "commitOffset", "destGroup", "isForce")


class Recorded(NamedTuple):
    """A recorded command."""

    name: str
    arguments: list[str]
    stdout: str
    error: str
    frames: list[list[Any]]


RECORDED: dict[str, Recorded] = {
    row["name"]: Recorded(**row) for row in map(json.loads, gzip.decompress(_FILE.read_bytes()).splitlines())
}


class Replayer:
    """Test double of a command's RemotingClient, which returns the recorded answer to each request."""

    def __init__(self, recorded: Recorded) -> None:
        self._frames = recorded.frames
        self.unknown: list[int] = []
        """Codes of requests that Apache's tool did not send."""

    async def invoke(
        self, address: str, code: int, header: CommandHeader | None = None, body: Any = b"", timeout_s: float = 3.0
    ) -> RemotingCommand:
        """Return the recorded answer to the request, or SYSTEM_ERROR if it was not recorded."""
        fields = {} if header is None else ext_map(header)
        for wanted, known, status, remark, ext, answer in self._frames:
            if wanted == code and _is_same(fields, known):
                answered = RemotingCommand(status, "JAVA", 401, 0, 1, remark, ext or None)
                answered.body = base64.b64decode(answer)
                return answered
        self.unknown.append(int(code))
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, "JAVA", 401, 0, 1, f"Apache's tool did not send {code} {fields}")

    async def call(self, *arguments: Any, **named: Any) -> RemotingCommand:
        """As `invoke`, but raise RemotingError for an answer other than SUCCESS."""
        answer = await self.invoke(*arguments, **named)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(answer.code, answer.remark or "")
        return answer

    async def close(self) -> None:
        """Do nothing."""


def _is_same(fields: Mapping[str, str], known: Mapping[str, str]) -> bool:
    return all(fields.get(name) == known.get(name) for name in _DECIDING)
