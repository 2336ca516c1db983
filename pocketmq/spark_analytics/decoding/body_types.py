"""Types of columns and of decoded bodies: Arrow types, and the same in Spark's DDL and JSON notations.

Every field may be null. Spark's names of types are those of `DataType.simpleString()`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

_SCALARS: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES: Final = {arrow_type: name for name, arrow_type in _SCALARS.items()}
_SYNONYMS: Final = {"integer": "int", "long": "bigint", "bool": "boolean", "real": "float"}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)", re.IGNORECASE | re.ASCII)
# Spark needs no quotes for such a name.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(decimal\(\s*\d+\s*,\s*\d+\s*\))|(\w+)|([<>,:]))\s*", re.IGNORECASE)
DEPTH_MAX: Final = 16


def ddl(arrow_type: Any) -> str:
    """Return a type as in a DDL string, with quoted names of fields where Spark needs them."""
    return _shown(arrow_type, lambda name: name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`")


def simple(arrow_type: Any) -> str:
    """Return a type as `DataType.simpleString()` does, which quotes nothing."""
    return _shown(arrow_type, lambda name: name)


def _shown(arrow_type: Any, quoted: Callable[[str], str]) -> str:
    if pa.types.is_struct(arrow_type):
        return f"struct<{','.join(f'{quoted(field.name)}:{_shown(field.type, quoted)}' for field in arrow_type)}>"
    if pa.types.is_list(arrow_type):
        return f"array<{_shown(arrow_type.value_type, quoted)}>"
    if pa.types.is_map(arrow_type):
        return f"map<{_shown(arrow_type.key_type, quoted)},{_shown(arrow_type.item_type, quoted)}>"
    if pa.types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    return _NAMES[arrow_type]


def scalar(name: str) -> Any:
    """Return the Arrow type of a scalar Spark type. Raises ValueError."""
    decimal = _DECIMAL.fullmatch(name.replace(" ", ""))
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    known = _SYNONYMS.get(name.lower(), name.lower())
    if known not in _SCALARS:
        raise ValueError(f"unknown type {name}: it must be array, map, struct, decimal(P,S), {', '.join(_SCALARS)}")
    return _SCALARS[known]


def struct(fields: Sequence[tuple[str, Any]]) -> Any:
    """Return the struct type of some fields. Raises ValueError if a name is repeated."""
    names = [name for name, _ in fields]
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise ValueError(f"a struct has several fields named {repeated[0]}")
    return pa.struct(fields)


def of_spark(value: Any, depth: int = 0) -> Any:
    """Return the Arrow type of Spark's JSON notation of a type (`DataType.jsonValue()`). Raises ValueError."""
    if depth > DEPTH_MAX:
        raise ValueError(f"types are nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, str):
        return scalar(value)
    match value:
        case {"type": "struct", "fields": [*fields]} if all(isinstance(field, dict) for field in fields):
            named = [(field.get("name"), of_spark(field.get("type"), depth + 1)) for field in fields]
            if all(isinstance(name, str) for name, _ in named):
                return struct(named)
        case {"type": "array", "elementType": element}:
            return pa.list_(of_spark(element, depth + 1))
        case {"type": "map", "keyType": "string", "valueType": element}:
            return pa.map_(pa.string(), of_spark(element, depth + 1))
    raise ValueError(f"{str(value)[:100]} is not a type in Spark's JSON notation")


def of_ddl(text: str) -> Any:
    """Return the struct of a DDL string such as `id bigint, lines array<struct<sku: string>>`. Raises ValueError."""
    return _Parser(text).struct(0, "")


class _Parser:
    """Recursive descent over the tokens of a DDL string; the last token is empty."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*self._scanned(), ""]
        self._at = 0

    def _scanned(self) -> Iterator[str]:
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise self._error(self._text[position:])
            position = match.end()
            yield match[0].strip()

    def _error(self, found: str) -> ValueError:
        near = repr(found[:20]) if found else "its end"
        return ValueError(
            f"{self._text[:200]!r} is not a schema such as `id bigint, lines array<struct<sku: string>>`, see {near}"
        )

    def _next(self, *expected: str) -> str:
        token = self._tokens[self._at]
        if token not in expected if expected else not token or token in "<>,:":
            raise self._error(token)
        self._at += 1
        return token

    def struct(self, depth: int, close: str) -> Any:
        """Parse fields up to the token `close`."""
        fields: list[tuple[str, Any]] = []
        while not fields or self._next(",", close) == ",":
            name = self._next()
            if self._tokens[self._at] == ":":
                self._at += 1
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            fields.append((name, self._type(depth + 1)))
        return struct(fields)

    def _type(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise ValueError(f"types are nested deeper than {DEPTH_MAX} levels")
        name = self._next()
        kind = name.lower()
        if kind not in ("struct", "array", "map"):
            return scalar(name)
        self._next("<")
        if kind == "struct":
            return self.struct(depth, ">")
        if kind == "map":
            if self._type(depth + 1) != pa.string():
                raise ValueError("the keys of a map must be of type string")
            self._next(",")
        element = self._type(depth + 1)
        self._next(">")
        return pa.list_(element) if kind == "array" else pa.map_(pa.string(), element)
