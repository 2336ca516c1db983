"""Replay of recorded traffic of real clients: the answers must equal those of the real brokers.

The recordings of a client are replayed in their order on one empty broker, at the recorded times; physical offsets in
requests are translated from the recorded store's to ours.
"""

import asyncio
import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.remoting.bodies import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode_header, encode_request
from pocketmq.remoting.frame import Frame, FrameBuffer
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.query import ViewMessageRequestHeader
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from tests.broker.data_path import DataPath, StubChannel, records

FOLDER = Path(__file__).parents[1] / "golden" / "wire"
RECORDINGS = [
    (
        "java494_json",
        "push_clustering push_broadcast push_orderly two_consumers pull_consumer producer_basic producer_errors",
    ),
    ("go_v2", "producer push orderly pull"),
    ("java550_json", "w_topics w_push"),
]
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
CODES_WITH_MESSAGES = (*PULLS, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)
CHECKER_CODES = (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.SUBSCRIPTION_NOT_LATEST)
PULL_EXT = {"nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"}
# The values of these fields are compared too; those of other fields depend on the history of the recorded store.
VALUES = {"queueId", "offset", *PULL_EXT}


class Replay:
    """One broker on which the recordings of a client are replayed."""

    def __init__(self) -> None:
        self.path = DataPath()
        self.path.services.topics.update(TopicConfig("WireBasic", 4, 4))  # was there before the recordings
        self.channels: dict[tuple[str, int], StubChannel] = {}
        self.ours: dict[tuple[str, int, int], RemotingCommand] = {}
        self.asked: dict[tuple[str, int, int], RemotingCommand] = {}
        # Physical offsets of the recorded store -> ours.
        self.moved: dict[int, int] = {}
        self.notified: dict[str, int] = {}

    def channel(self, recording: str, connection: int) -> StubChannel:
        return self.channels.setdefault((recording, connection), StubChannel(40000 + len(self.channels)))

    async def until_ms(self, now_ms: int) -> None:
        """Advance message time and monotonic time to `now_ms`."""
        clock = self.path.clock
        if now_ms - clock.message_time_ms() > 300_000:
            clock.set_ms(now_ms)  # skip the idle time between two recordings
        while clock.message_time_ms() < now_ms:
            step = min(5, now_ms - clock.message_time_ms())
            clock.seconds += step / 1000
            clock.advance(step)
            await asyncio.sleep(0)
            self.path.services.holds._expire()
            self.path.turn()
        self.collect()

    def collect(self) -> None:
        for (recording, connection), channel in self.channels.items():
            for command in channel.take():
                if command.is_response:
                    self.ours[recording, connection, command.opaque] = command
                elif command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                    self.notified[recording] = self.notified.get(recording, 0) + 1

    def ask(self, recording: str, connection: int, frame: Frame) -> None:
        command = decode_header(frame[0], frame[1])
        self.asked[recording, connection, command.opaque] = command
        self.path.serve(self.translated(command, frame), self.channel(recording, connection))
        self.path.turn()
        self.collect()

    def translated(self, command: RemotingCommand, frame: Frame) -> Frame:
        """Return the request with our physical offset in place of the recorded one."""
        declared: type[CommandHeader] | None = {
            RequestCode.CONSUMER_SEND_MSG_BACK: ConsumerSendMsgBackRequestHeader,
            RequestCode.VIEW_MESSAGE_BY_ID: ViewMessageRequestHeader,
        }.get(command.code)  # type: ignore[call-overload]
        if declared is None:
            return frame
        assert command.ext is not None
        command.ext["offset"] = str(self.moved.get(int(command.ext["offset"]), 10**15))
        data = b"".join(encode_request(command.code, command.header(declared), frame[2], command.opaque))
        head, header, body = FrameBuffer().feed(data)[0]
        return head, header.replace(b'"version":401', b'"version":%d' % command.version), body

    def learn(self, code: int, recorded: RemotingCommand, ours: RemotingCommand) -> None:
        """Record the offset pairs of the messages of two answers to the same request."""
        pairs: list[tuple[int, int]] = []
        if code in CODES_WITH_MESSAGES:
            theirs, mine = records(recorded.body), records(ours.body)
            pairs = [(one.physical_offset, other.physical_offset) for one, other in zip(theirs, mine, strict=False)]
        elif recorded.ext and ours.ext and "msgId" in recorded.ext:
            theirs, mine = (answer.ext["msgId"].split(",") for answer in (recorded, ours))
            pairs = [
                (decode_message_id(one)[1], decode_message_id(other)[1]) for one, other in zip(theirs, mine, strict=True)
            ]
        self.moved.update(pairs)


def rows_of(client: str, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(FOLDER / client / f"{name}.jsonl.gz", "rt") as file:
        start_ms = json.loads(file.readline())["startedAtMs"]
        for line in file:
            row = json.loads(line)
            if row.get("link") in ("broker", "fast"):
                yield row | {"now_ms": start_ms + row["t"]}


def compare(
    key: tuple[str, int, int], asked: RemotingCommand, recorded: RemotingCommand, ours: RemotingCommand, is_4_9: bool
) -> list[str]:
    """Return the differences between the two answers to a request."""
    where = f"{key} code {asked.code} {asked.ext}"
    if ours.code != recorded.code:
        return [f"{where}: code {ours.code} {ours.remark}, recorded {recorded.code} {recorded.remark}"]
    if ours.code == ResponseCode.MESSAGE_ILLEGAL:
        assert recorded.remark is not None and ours.remark is not None
        return [] if ours.remark.startswith(recorded.remark) else [f"{where}: {ours.remark}"]
    problems = []
    theirs, mine = recorded.ext or {}, ours.ext or {}
    # A 5.x broker returns more fields than ours, which answers as 4.9.4 does.
    if set(theirs) != set(mine) if is_4_9 else not set(mine) <= set(theirs):
        problems.append(f"{where}: ext {mine}, recorded {theirs}")
    problems += [
        f"{where}: {name}={mine[name]}, recorded {theirs[name]}"
        for name in VALUES & set(theirs) & set(mine)
        if theirs[name] != mine[name] and key[0] != "producer_errors"  # recorded after other traffic
    ]
    if asked.code in PULLS and set(theirs) >= PULL_EXT and ours.remark != recorded.remark:
        problems.append(f"{where}: remark {ours.remark}, recorded {recorded.remark}")
    if asked.code in CODES_WITH_MESSAGES and [r.body for r in records(ours.body)] != [
        r.body for r in records(recorded.body)
    ]:
        problems.append(f"{where}: other messages")
    return problems


@pytest.mark.parametrize(("client", "names"), RECORDINGS, ids=[client for client, _ in RECORDINGS])
async def test_recorded_clients_get_the_recorded_answers(client, names):
    replay = Replay()
    problems: list[str] = []
    compared = 0
    for name in names.split():
        for row in rows_of(client, name):
            connection = row["conn"]
            if "eof" in row:
                replay.channel(name, connection).close()
                continue
            (frame,) = FrameBuffer().feed(base64.b64decode(row["frame"]))
            await replay.until_ms(row["now_ms"])
            if row["dir"] == "c2s":
                replay.ask(name, connection, frame)
            elif row["flag"] & 1:
                recorded = decode_header(frame[0], frame[1])
                recorded.body = frame[2]
                key = (name, connection, recorded.opaque)
                ours = replay.ours.get(key)
                if ours is None and recorded.code in CHECKER_CODES and replay.asked[key].code in PULLS:
                    continue  # still held: Apache's checker runs each 5 s, ours 5 s after the arrival
                if ours is None:
                    problems.append(f"{key}: no answer, recorded {recorded.code} {recorded.remark} {recorded.ext}")
                    continue
                problems += compare(key, replay.asked[key], recorded, ours, client != "java550_json")
                compared += 1
                replay.learn(replay.asked[key].code, recorded, ours)
    assert not problems, "\n".join(problems)
    assert compared > 40
