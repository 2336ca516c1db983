"""Command headers and their encoders, all derived from one declaration per header.

A header is a `CommandHeader` subclass with snake_case fields, which are camelCase on the wire (or have the name given by
`field(name=...)`). Fields without a default are required. On the wire every field is text in the `extFields` map.

* decoding: msgspec reads the JSON header straight into `Request[Header]` (`command`), text to numbers included;
* `ext_json(header)`: the bytes of the `extFields` object, by a `%` template per class, which is generated at first use
  because it is several times faster than `msgspec.to_builtins` and a loop;
* `ext_map(header)`: the same as a dict, for the binary serialisation and for clients;
* `lettered(Header, "abc...")`: the same fields with single-letter names, as in SendMessageRequestHeaderV2.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Language = Annotated[str, msgspec.Meta(max_length=40)] | Annotated[int, msgspec.Meta(ge=0, le=255)]
"""The language of a client: its name, or the byte of the binary header."""


class CommandHeader(msgspec.Struct, rename="camel", gc=False):
    """Base of all headers. Fields are str, bool, I32 or I64, or one of these `| None` with default None."""


class NoHeader(CommandHeader):
    """Header of codes without fields."""


H = TypeVar("H", bound=CommandHeader)


def lettered(declared: type[H], letters: str) -> type[H]:
    """Return a subclass of `declared` whose fields are named by `letters` on the wire, in order."""
    fields = msgspec.structs.fields(declared)
    assert len(letters) == len(fields)
    rows = [
        (field.name, field.type, msgspec.field(default=field.default, name=letter))
        for field, letter in zip(fields, letters, strict=True)
    ]
    name = declared.__name__ + "V2"
    return msgspec.defstruct(name, rows, bases=(declared,), gc=False, module=declared.__module__)  # type: ignore


def _kind(annotation: Any) -> type:
    """Return the type (str, int or bool) of an annotation such as `I32 | None`."""
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    options = [option for option in get_args(annotation) if option is not NoneType]
    return _kind(options[0]) if options else annotation


def _text_expression(kind: type, value: str) -> str:
    if kind is bool:
        return f'("true" if {value} else "false")'
    return value if kind is str else f"str({value})"


def _json_expression(kind: type, value: str) -> tuple[str, str]:
    """Return (template piece, argument) for one value in a bytes template."""
    if kind is str:
        return "%b", f"quote({value})"
    if kind is bool:
        return '"%b"', f'(b"true" if {value} else b"false")'
    return '"%d"', value


def is_optional(field: msgspec.structs.FieldInfo) -> bool:
    """Return whether a field may be None; None is omitted on the wire."""
    return NoneType in get_args(field.type)


@cache
def json_writer(declared: type[CommandHeader], before: str = "", after: str = "", values: str = "") -> Callable[..., bytes]:
    """Generate the encoder `write(h, *values)` of a header class: one template, in which optional fields follow the required
    ones. `before` and `after` are the templates of what surrounds the object, with one of the `values` in the first."""
    pieces, arguments, optional_arguments = [], [], []
    for field in msgspec.structs.fields(declared):
        piece, argument = _json_expression(_kind(field.type), f"h.{field.name}")
        if is_optional(field):
            spliced = f"b',\"{field.encode_name}\":{piece}' % ({argument},)"
            optional_arguments.append(f"(b'' if h.{field.name} is None else {spliced})")
        else:
            pieces.append(f'"{field.encode_name}":{piece}')
            arguments.append(argument)
    if pieces:
        template = "{" + ",".join(pieces) + "%b" * len(optional_arguments) + "}"
        arguments += optional_arguments
    else:
        template = "{%b}"
        arguments = [f"b''.join(({', '.join([*optional_arguments, ''])}))[1:]"]  # [1:]: the first comma
    first, *others = values.split(", ") if values else [""]
    every = ", ".join(filter(None, [first, *arguments, *others]))
    scope: dict[str, Any] = {"quote": msgspec.json.encode}
    exec(f"def write(h, {values}):\n    return b'{before}{template}{after}' % ({every},)", scope)
    return scope["write"]  # type: ignore[no-any-return]


@cache
def _map_writer(declared: type[CommandHeader]) -> Callable[[CommandHeader], dict[str, str]]:
    lines = ["def write(h):", "    out = {}"]
    for field in msgspec.structs.fields(declared):
        put = f"out[{field.encode_name!r}] = {_text_expression(_kind(field.type), f'h.{field.name}')}"
        if is_optional(field):
            lines.append(f"    if h.{field.name} is not None:")
            put = "    " + put
        lines.append("    " + put)
    lines.append("    return out")
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    return scope["write"]  # type: ignore[no-any-return]


def ext_json(header: CommandHeader) -> bytes:
    """Return the JSON text of `extFields`: every value a string, None omitted."""
    return json_writer(type(header))(header)


def ext_map(header: CommandHeader) -> dict[str, str]:
    """Return the `extFields` map: every value a string, None omitted."""
    return _map_writer(type(header))(header)


def from_ext(declared: type[H], ext: Mapping[str, str]) -> H:
    """Decode a header from its `extFields` map. Raises msgspec.ValidationError with the field name."""
    return msgspec.convert(ext, declared, strict=False)
