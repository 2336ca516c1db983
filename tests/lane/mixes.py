"""Random sequences of requests: ordinary sends in all serialisations, and everything that is nearly one."""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from pocketmq.remoting.codes import JSON, ROCKETMQ, RequestCode
from pocketmq.remoting.command import encode_request
from pocketmq.remoting.frame import frame_head
from pocketmq.remoting.header import ext_map
from pocketmq.remoting.headers.send import SendMessageRequestHeader
from pocketmq.store.format.message import Message
from pocketmq.store.format.record import encode_record, record_size, topic_part
from tests.broker.data_path import pull_header, send_header

CODES = [RequestCode.SEND_MESSAGE_V2] * 4 + [RequestCode.SEND_MESSAGE]
TOPICS = ["T"] * 12 + ["Narrow"] * 3
ODD_TOPICS = TOPICS + ["Multi", "New1", "New2", "TBW102", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "b", "", "a/b", "订单"]


def _entries(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (entry.partition("=") for entry in text.split("|"))]


ORDINARY = _entries(
    "TAGS=TagA|TAGS=标签|KEYS=k1|KEYS=k1 k2  k3|UNIQ_KEY=7F0001|WAIT=true|color=red|größe=XXL|emoji=\U0001f600 ok|"
    'BUYER_ID=7|quote=a"b\\c/d|tab=a\tb|__SHARDINGKEY=s'
)
RARE = _entries(
    "DELAY=3|DELAY=0|DELAY=x|TIMER_DELAY_MS=90000|TIMER_DELIVER_MS=1700000100000|__STARTDELIVERTIME=1700000100000|"
    "TRAN_MSG=true|TRAN_MSG=false|WAIT=false|WAIT=True|CLUSTER=other|POP_CK=0 1 2 3 4 5 6 7|_SYS_MSG_PRIORITY_=2|"
    "__LITE_TOPIC=l|SOME_NEW_ONE=1|INNER_MULTI_DISPATCH=x|TIMER_NEW=1|_own=1|UPPER=1|a=|=b|z\0=1"
)
IN_COPIES = _entries(
    "note=PMQ_1|PMQ_OWN=1|myQUEUE_MS=1|__CRC32#=7|INNER_MULTI_QUEUE_OFFSET=1|TIMER_ROLL_TIMES=2|"
    "WAIT=false|TRAN_MSG=false|_own=1|UPPER=1|a=b\x01c|CLUSTER=other|a="
)
"""Properties of a message that is due later, with which its copy needs a decision."""
SQL = ["color = 'red'", "TAGS = 'TagA' OR color IS NULL", "KEYS LIKE 'k1 k2%'", "tab IS NOT NULL AND"]
ODD_VALUES = ["", "x", " 1", "1 ", "+1", "01", "-0", "1.0", "true", "false", "null", "2147483648", "9" * 30]


def requests(seed: int) -> Iterator[bytes]:
    """Yield frames endlessly; about two of three are ordinary sends.

    Pulls get few messages: an answer of 16 KiB may end the turn, and the lane's answers are not always its channel's, so
    that the turns of two brokers would end at different requests.
    """
    rng = random.Random(seed)
    opaque = 0
    while True:
        opaque += 1
        how = rng.random()
        if how < 0.02:
            yield from (_pull(rng, opaque) for _ in range(rng.choice((1, 1, 3, 12, 20))))
        elif how < 0.08:
            yield b"".join(encode_request(rng.choice([12, 25, 29, 30, 31, 105, 999]), None, b"", opaque))
        else:
            yield _send(rng, opaque)


def _pull(rng: random.Random, opaque: int) -> bytes:
    header = pull_header(
        rng.choice([0, 1, rng.randrange(500)]), max_msg_nums=rng.choice([1, 2, 4]),
        queue_id=rng.choice([0, 0, 1, 2, 3, 5, -1]), sys_flag=rng.choice([4, 4, 4, 5, 0]), commit_offset=rng.randrange(9),
        consumer_group=rng.choice(["cg", "cg", "other"]), topic=rng.choice(TOPICS if rng.random() < 0.9 else ODD_TOPICS),
        **rng.choice([{}, {}, {"subscription": "TagA"}, {"subscription": rng.choice(SQL), "expression_type": "SQL92"}]),
    )  # fmt: skip
    return b"".join(encode_request(RequestCode.PULL_MESSAGE, header, b"", opaque))


def _send(rng: random.Random, opaque: int) -> bytes:
    is_odd = rng.random() < 0.3
    topic = rng.choice(ODD_TOPICS if is_odd else TOPICS)
    header = send_header(
        _properties(rng, is_odd), topic=topic,
        queue_id=rng.choice([0, 1, 2, 3, 4, 9, -1, -5] if is_odd else [0, 1, 2, 3] if topic == "T" else [0]),
        sys_flag=rng.choice([0, 1, 2, 4, 8, 12, 16, 48, 64, 0x300, -1, -(2**31)] if is_odd else [0, 0, 0, 1, 0x300]),
        born_timestamp=rng.choice([0, 1_600_000_000_000, 1_700_000_000_123, -5, 10**18 - 1, 2**63 - 1]),
        flag=rng.choice([0, 0, 7, -1, 2**31 - 1]), reconsume_times=rng.choice([None, 0, 3, -2]),
        unit_mode=rng.choice([None, False, True]) if is_odd else rng.choice([None, False]),
        batch=rng.choice([None, False, True]) if is_odd else rng.choice([None, False]),
        max_reconsume_times=rng.choice([None, 16]), broker_name=rng.choice([None, "b"]),
    )  # fmt: skip
    body = (
        rng.choice([b"", b"x", b"\0" * 100, rng.randbytes(rng.randrange(2000))])
        if is_odd
        else rng.randbytes(rng.randrange(1, 300))
    )
    flag = rng.choice([0, 1, 2, 3, 4, -1]) if is_odd and rng.random() < 0.3 else rng.choice([0, 0, 0, 0, 2])
    return framed(rng, rng.choice(CODES), header, body, opaque, flag, is_odd=is_odd)


def timers(seed: int, due_ms: Sequence[int]) -> Iterator[bytes]:
    """Yield frames endlessly with messages that are due at one of these times, the copies of most of which are ordinary.
    Some of the last time are cancelled."""
    rng = random.Random(seed)
    for opaque in count(1):
        is_odd = rng.random() < 0.03
        entries = list(dict(rng.sample(ORDINARY, rng.randrange(1, 5))).items())
        if is_odd:
            entries.insert(rng.randrange(len(entries) + 1), rng.choice(IN_COPIES))
        entries.append(("TIMER_DELIVER_MS", str(rng.choice(due_ms))))
        if is_odd and entries[-1][1] == str(due_ms[-1]):
            entries.append(("TIMER_DEL_UNIQKEY", "7F0001"))
        text = "\x02".join(f"{name}\x01{value}" for name, value in entries) + rng.choice(["", "\x02"])
        header = send_header(
            text, topic=rng.choice(ODD_TOPICS if is_odd else TOPICS), queue_id=rng.choice([0, 0, 1, 2, 3]),
            sys_flag=rng.choice([0, 0, 1, 0x300]), flag=rng.choice([0, 7]), reconsume_times=rng.choice([None, 3]),
        )  # fmt: skip
        yield b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, rng.randbytes(rng.randrange(1, 300)), opaque))


def _properties(rng: random.Random, is_odd: bool) -> str | None:
    if rng.random() < 0.05:
        return rng.choice([None, ""])
    entries = rng.sample(ORDINARY, rng.randrange(1, 7))
    if not is_odd:  # each name once
        entries = list(dict(entries).items())
    elif rng.random() < 0.6:
        entries.insert(rng.randrange(len(entries) + 1), rng.choice(RARE))
    text = "\x02".join(f"{name}\x01{value}" for name, value in entries)
    if is_odd and rng.random() < 0.1:
        return rng.choice(["\x02", "\x01", "a", "a\x01b\x01c", "\x02" + text, text + "\x02\x02", "a\x01" + "v" * 9000])
    return text + rng.choice(["", "\x02"])


def framed(
    rng: random.Random, code: int, header: SendMessageRequestHeader, body: bytes, opaque: int, flag: int, *, is_odd: bool
) -> bytes:
    """Return the frame of a send in one of the forms that clients use; if `is_odd`, perhaps in one that none uses."""
    if code == RequestCode.SEND_MESSAGE and not (is_odd and rng.random() < 0.1):
        header = SendMessageRequestHeader(**{name: getattr(header, name) for name in header.__struct_fields__})
    ext = ext_map(header)
    if rng.random() < 0.1:
        ext["lo"], ext["ns"] = "true", "x"
    if is_odd and rng.random() < 0.2:
        ext[rng.choice(list(ext))] = rng.choice(
            ["", "x", " 1", "1 ", "+1", "01", "1.0", "true", "false", "null", "2147483648", "9" * 30]
        )
    if is_odd and rng.random() < 0.1:
        del ext[rng.choice(list(ext))]
    if rng.random() < 0.25:
        head = _binary(rng, code, ext, opaque, flag)
        kind = ROCKETMQ
    else:
        head, kind = _json(rng, code, ext, opaque, flag, is_odd), JSON
    if is_odd and rng.random() < 0.1 and head:
        damaged = bytearray(head)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        head = bytes(damaged)
    return frame_head(kind, len(head), len(body)) + head + body


def _binary(rng: random.Random, code: int, ext: dict[str, str], opaque: int, flag: int) -> bytes:
    entries = b"".join(
        len(name.encode()).to_bytes(2, "big") + name.encode() + len(value.encode()).to_bytes(4, "big") + value.encode()
        for name, value in ext.items()
    )
    fixed = code.to_bytes(2, "big") + bytes([rng.randrange(14)]) + b"\x01\x91"
    fixed += opaque.to_bytes(4, "big") + flag.to_bytes(4, "big", signed=True)
    return fixed + bytes(4) + len(entries).to_bytes(4, "big") + entries


def _json(rng: random.Random, code: int, ext: dict[str, str], opaque: int, flag: int, is_odd: bool) -> bytes:
    fields = dict(ext)
    if rng.random() < 0.2:  # as the C++ client: numbers are not quoted
        fields = {
            name: int(value) if value.isdigit() and name not in ("i", "properties") else value for name, value in ext.items()
        }
    if rng.random() < 0.3:
        rows = list(fields.items())
        rng.shuffle(rows)
        fields = dict(rows)
    rest = {"extFields": fields, "flag": flag, "language": rng.choice(["JAVA", "GO", "CPP"]), "opaque": opaque}
    rest |= {"serializeTypeCurrentRPC": "JSON", "version": 401}
    if is_odd and rng.random() < 0.1:
        del rest[rng.choice(list(rest))]
    if is_odd and rng.random() < 0.1:
        rest["remark"] = "r"
    document = {"code": code} | rest
    compact = not (is_odd and rng.random() < 0.05)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5, separators=(",", ":") if compact else (", ", ": "))
    if is_odd and rng.random() < 0.05:
        text = text.replace('"flag":', '"flag":0,"flag":', 1)
    return text.encode()


def waited_record(properties: str) -> bytes:
    """Return the record of a message that waits."""
    message = Message("rmq_sys_wheel_timer", 0, b"body", bytes(8), bytes(8), properties_bytes=properties.encode())
    magic_code, topic = topic_part(message.topic.encode())
    return encode_record(message, magic_code, topic, record_size(message, len(topic)), 7, 9000, 1_700_000_000_000)


def write_seeds(folder: Path, seeds: int = 1000) -> None:
    """Write reads of a few requests each, and records of messages that wait, with which a fuzzer starts."""
    frames, rng = requests(1), random.Random(1)
    for number in range(seeds):
        (folder / f"seed{number}").write_bytes(b"".join(islice(frames, 1 + number % 4)))
        waiting = f"REAL_TOPIC\x01T\x02REAL_QID\x01{rng.randrange(5)}\x02{_properties(rng, number % 4 == 0) or ''}"
        (folder / f"waited{number}").write_bytes(waited_record(waiting))


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
