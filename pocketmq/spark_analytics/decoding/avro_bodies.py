"""Avro bodies as typed values: one record in Avro's binary encoding, without a header.

The schema is the one that the bodies were written with. Types become those of Spark's `from_avro`, except that unions are
refused unless they are of null and one type, or of two sizes of numbers.
"""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from pocketmq.spark_analytics.decoding.bodies import BodyError

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_DECIMAL: Final = "decimal"
_PRECISION_MAX: Final = 38
_WIDENED: Final = ({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())


def arrow_type(schema: str) -> Any:
    """Return the struct type of a record's schema in JSON. Raises ValueError, ImportError."""
    parsed, named = _parsed(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ValueError("the Avro schema of a body must be a record")
    return _Types(named).of(parsed, ())


def decoder(schema: str) -> Callable[[bytes], Any]:
    """Return a function from a body to a record's values; it raises BodyError."""
    import fastavro

    parsed, _ = _parsed(schema)

    def decode(body: bytes) -> Any:
        stream = io.BytesIO(body)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:  # of many types: EOFError, IndexError, OverflowError, ...
            raise BodyError(f"its body does not match the Avro schema: {error or type(error).__name__}") from None
        if stream.tell() != len(body):
            raise BodyError(f"its body does not match the Avro schema: {len(body) - stream.tell()} bytes follow the record")
        return value

    return decode


def _parsed(schema: str) -> tuple[Any, Mapping[str, Any]]:
    """Return (a parsed schema, its named types)."""
    try:
        import fastavro
    except ImportError:
        raise ImportError("bodyAs=avro needs fastavro: pip install fastavro") from None
    named: dict[str, Any] = {}
    try:
        return fastavro.parse_schema(_with_known_logical_types(json.loads(schema)), named), named
    except json.JSONDecodeError as error:
        raise ValueError(f"the Avro schema is not JSON: {error}") from None
    except Exception as error:  # of types without a common base
        raise ValueError(f"not an Avro schema: {type(error).__name__}: {error}") from None


def _with_known_logical_types(schema: Any) -> Any:
    """Return a schema without unsupported logical types: their values have the underlying type, such as int for a time."""
    if isinstance(schema, list):
        return [_with_known_logical_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _with_known_logical_types(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key != "logicalType" or value in _LOGICAL or value == _DECIMAL
    }


class _Types:
    """Conversion of Avro schemas to Arrow types; `within` are the names of the enclosing records."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def of(self, schema: Any, within: tuple[str, ...]) -> Any:
        if isinstance(schema, list):
            return self._union(schema, within)
        if isinstance(schema, str):
            return self.of(self._named.get(schema, {"type": schema}), within)
        kind = schema["type"]
        match kind:
            case "record":
                if schema["name"] in within:
                    raise ValueError(f"the Avro record {schema['name']} contains itself, which Spark has no type for")
                around = (*within, schema["name"])
                return pa.struct([(field["name"], self.of(field["type"], around)) for field in schema["fields"]])
            case "array":
                if self._is_empty(schema["items"]):
                    raise ValueError("an Avro array whose items take no bytes is not supported: it could have any length")
                return pa.list_(self.of(schema["items"], within))
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"], within))
        if kind not in _PRIMITIVES:
            raise ValueError(f"the Avro type {kind} is supported only in a union with another type")
        if schema.get("logicalType") == _DECIMAL:
            precision, scale = schema.get("precision", 0), schema.get("scale", 0)
            if not 0 < precision <= _PRECISION_MAX or not 0 <= scale <= precision:
                raise ValueError(
                    f"an Avro decimal has precision {precision}, scale {scale}: Spark supports up to {_PRECISION_MAX} digits"
                )
            return pa.decimal128(precision, scale)
        return _LOGICAL.get(schema.get("logicalType", ""), _PRIMITIVES[kind])

    def _union(self, schemas: list[Any], within: tuple[str, ...]) -> Any:
        others = [schema for schema in schemas if schema not in ("null", {"type": "null"})]
        if len(others) == 1:
            return self.of(others[0], within)
        names = {schema if isinstance(schema, str) else "" for schema in others}
        for widened, wide in _WIDENED:
            if names == widened:
                return wide
        raise ValueError(f"the Avro union {json.dumps(schemas)[:200]} is not of null and one other type")

    def _is_empty(self, schema: Any) -> bool:
        """Return whether values of a type take no bytes, so that a few bytes could stand for any number of them."""
        if isinstance(schema, list):
            return False
        if isinstance(schema, str):
            return schema == "null" or (schema in self._named and self._is_empty(self._named[schema]))
        if schema["type"] == "record":
            return all(self._is_empty(field["type"]) for field in schema["fields"] if field["type"] != schema["name"])
        return schema["type"] == "null" or (schema["type"] == "fixed" and not schema["size"])
