"""Targets for frames and headers."""

import struct
from collections.abc import Iterator
from functools import cache

import msgspec

from pocketmq.broker.handlers import ROUTES as BROKER_ROUTES
from pocketmq.namesrv.handlers import ROUTES as NAMESRV_ROUTES
from pocketmq.remoting.command import Response, decode_header, encode_request, request_decoder, typed_request
from pocketmq.remoting.fastjson import DECODE_ERRORS
from pocketmq.remoting.frame import FrameBuffer, FrameError
from pocketmq.remoting.header import CommandHeader, ext_map
from tests.fuzz.fuzz_mutators import grow_frames, grow_with_first_byte, mutate_frames, mutate_header
from tests.fuzz.fuzz_oracle import One, Target, Wrong
from tests.remoting.recordings import all_recorded

FRAME_SIZE_MAX = 1200


@cache
def recorded_frames() -> dict[int, list[bytes]]:
    """Return recorded frames of moderate size by code, at most two of each serialisation."""
    found: dict[tuple[int, int], list[bytes]] = {}
    for row in all_recorded():
        ((kind, _, _),) = FrameBuffer().feed(row.data)
        known = found.setdefault((row.read["code"], kind), [])
        if len(row.data) <= FRAME_SIZE_MAX and len(known) < 2:
            known.append(row.data)
    by_code: dict[int, list[bytes]] = {}
    for (code, _), frames in found.items():
        by_code.setdefault(code, []).extend(frames)
    return by_code


def declared_frames(table: dict[int, object], body: bytes = b"") -> Iterator[bytes]:
    """Return a request for each route, with values for all declared fields."""
    for code, route in table.items():
        fields = sample_fields(route.header)  # type: ignore[attr-defined]
        header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401}
        text = msgspec.json.encode(header)
        yield struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def sample_fields(declared: type[CommandHeader]) -> dict[str, str]:
    samples = {"topic": "T", "group": "g", "client_id": "c1", "properties": "KEYS\x01k\x02", "broker_name": "b"}
    fields = {}
    for field in msgspec.structs.fields(declared):
        default = next((text for part, text in samples.items() if part in field.name), "1")
        fields[field.encode_name] = "true" if "bool" in str(field.type) else default
    return fields


def _frames() -> One:
    def one(data: bytes) -> None:
        whole, error = _fed([data])
        for cut in {1, len(data) // 3, len(data) - 1} if data else ():
            parts, error_of_parts = _fed([data[:cut], data[cut:]])
            if (parts, error_of_parts) != (whole, error):
                raise Wrong(f"cut at {cut}: {len(parts)} frames and {error_of_parts}, whole: {len(whole)} and {error}")
        if _fed([data[at : at + 7] for at in range(0, min(len(data), 3000), 7)])[1] != _fed([data[:3000]])[1]:
            raise Wrong("fed in pieces of 7 bytes, the data gives another result")

    return one


def _fed(parts: list[bytes]) -> tuple[list[object], str]:
    buffer, frames = FrameBuffer(), []
    try:
        for part in parts:
            frames += buffer.feed(part)
    except FrameError as error:
        # Frames received in one piece with an invalid one are lost.
        return [], str(error)
    return frames, ""


def _header() -> One:
    table = {**NAMESRV_ROUTES, **BROKER_ROUTES}
    quick = {code: request_decoder(route.header) for code, route in table.items()}

    def one(data: bytes) -> None:
        if not data:
            return
        kind, header = data[0] % 3, data[1:]
        command = decode_header(kind, header)
        if (command.serialize_type, command.body) != (kind, b""):
            raise Wrong("a field that only we set was set by the header")
        _answer(command.opaque, kind)
        route = table.get(command.code)
        if route is None:
            return
        try:
            request = quick[command.code](header) if kind == 0 else typed_request(command, route.header)
        except DECODE_ERRORS:
            request = typed_request(command, route.header)
        ext_map(request.header)
        _answer(request.opaque, kind)
        if any(getattr(request, name, None) for name in ("body", "channel", "frame", "raw_header")):
            raise Wrong("a field that only we set was set by the header")
        if request.code != command.code:
            raise Wrong(f"the typed request has code {request.code}, the decoded header code {command.code}")

    return one


def _answer(opaque: int, serialize_type: int) -> None:
    """Check that decoded values can be encoded into an answer."""
    out: list[bytes | memoryview] = []
    Response(0, remark="x").encode_into(out, opaque, serialize_type)
    ((kind, header, _),) = FrameBuffer().feed(b"".join(out))
    answer = decode_header(kind, header)
    if answer.opaque != opaque:
        raise Wrong(f"opaque {opaque} comes back as {answer.opaque}")


def _header_seeds() -> list[bytes]:
    seeds = []
    for frames in recorded_frames().values():
        for data in frames:
            ((kind, header, _),) = FrameBuffer().feed(data)
            seeds.append(bytes((kind,)) + header)
    for table in (BROKER_ROUTES, NAMESRV_ROUTES):
        for data in declared_frames(table):  # type: ignore[arg-type]
            seeds.append(b"\0" + data[8:])
    return seeds


def _frame_seeds() -> list[bytes]:
    frames = [frame for frames in recorded_frames().values() for frame in frames]
    return [*frames, b"".join(frames[:3]), b"".join(encode_request(31, None, b"", 1)), b"\0\0\0\4\0\0\0\0" * 3]


def _mutate_header(rng, data):  # type: ignore[no-untyped-def]
    return data[:1] + mutate_header(rng, data[:1] == b"\1", data[1:])


TARGETS = (
    Target("frames", _frames, _frame_seeds, mutate=mutate_frames, grow=grow_frames),
    Target(
        "headers", _header, _header_seeds, (FrameError, msgspec.ValidationError), mutate=_mutate_header,
        grow=grow_with_first_byte, weight=2.0,
    ),
)  # fmt: skip
