"""JSON bodies as typed values: decoding by a schema, and inference of a schema from samples.

A body must be a JSON object. Fields that the schema lacks are ignored, absent ones are null, and a field of type string may
hold any other value, of which it shows the JSON text, as Spark's own JSON source does.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa

from pocketmq.spark_analytics.decoding.bodies import BodyError
from pocketmq.spark_analytics.decoding.body_types import DEPTH_MAX, simple

# Every field becomes a column of Spark.
FIELDS_MAX: Final = 1000
_INT64: Final = range(-(2**63), 2**63)
_STRING: Final = pa.string()
_UNKNOWN: Final = pa.null()
_PYTHON_TYPES: Final = {
    pa.bool_(): bool,
    pa.int32(): Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    pa.int64(): Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    pa.float32(): float,
    pa.float64(): float,
    _STRING: str,
}


def python_type(arrow_type: Any) -> Any:
    """Return the type of the Python values of a JSON body. Raises ValueError if JSON has no values of a type."""
    if pa.types.is_struct(arrow_type):
        fields = {field.name: python_type(field.type) | None for field in arrow_type}
        return TypedDict("Fields", fields, total=False)  # type: ignore[operator]
    if pa.types.is_list(arrow_type):
        return list[python_type(arrow_type.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(arrow_type):
        return dict[str, python_type(arrow_type.item_type) | None]  # type: ignore[misc]
    if arrow_type not in _PYTHON_TYPES:
        raise ValueError(f"a JSON body has no value of type {simple(arrow_type)}: read a string and cast it")
    return _PYTHON_TYPES[arrow_type]


def decoder(arrow_type: Any) -> Callable[[bytes], Any]:
    """Return a function from a body to a value of a struct type; it raises BodyError."""
    wanted = python_type(arrow_type)
    strict = msgspec.json.Decoder(wanted)

    def decode(body: bytes) -> Any:
        try:
            return strict.decode(body)
        except msgspec.ValidationError:
            pass
        except (ValueError, RecursionError) as error:
            raise BodyError(f"its body is not JSON: {error}") from None
        try:
            # Rarely needed: a string field may have a value of another type.
            return msgspec.convert(_with_texts(msgspec.json.decode(body), arrow_type), wanted)
        except (ValueError, RecursionError) as error:
            raise BodyError(f"its body does not match the JSON schema: {error}") from None

    return decode


def _with_texts(value: Any, arrow_type: Any) -> Any:
    """Return a value with JSON text where the type is string and the value is not."""
    if arrow_type == _STRING:
        return value if isinstance(value, str | None) else msgspec.json.encode(value).decode()
    if isinstance(value, dict) and pa.types.is_struct(arrow_type):
        return {field.name: _with_texts(value[field.name], field.type) for field in arrow_type if field.name in value}
    if isinstance(value, dict) and pa.types.is_map(arrow_type):
        return {key: _with_texts(item, arrow_type.item_type) for key, item in value.items()}
    if isinstance(value, list) and pa.types.is_list(arrow_type):
        return [_with_texts(item, arrow_type.value_type) for item in value]
    return value


# --- inference ------------------------------------------------------------------------------------------------------


def inferred(bodies: Iterable[bytes]) -> tuple[Any, int]:
    """Return (struct type that fits all JSON objects among some bodies, number of the objects). Raises ValueError."""
    found, count = pa.struct([]), 0
    for body in bodies:
        try:
            value = msgspec.json.decode(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            count += 1
            found = _merged(found, _type_of(value, 0))
            if _field_count(found) > FIELDS_MAX:
                raise ValueError(f"the sampled JSON bodies have more than {FIELDS_MAX} fields: give a schema with fewer")
    return _settled(found), count


def _type_of(value: Any, depth: int) -> Any:
    match value:
        case None:
            return _UNKNOWN
        case bool():
            return pa.bool_()
        case int() if value in _INT64:
            return pa.int64()
        case float():
            return pa.float64()
        case dict() if depth < DEPTH_MAX:
            return pa.struct([(name, _type_of(item, depth + 1)) for name, item in value.items() if name])
        case list() if depth < DEPTH_MAX:
            element = _UNKNOWN
            for item in value:
                element = _merged(element, _type_of(item, depth + 1))
            return pa.list_(element)
    return _STRING


def _merged(one: Any, other: Any) -> Any:
    """Return the type that fits the values of two types; text if there is no closer one."""
    if one == other or other == _UNKNOWN:
        return one
    if one == _UNKNOWN:
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, _UNKNOWN), field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return _STRING


def _settled(arrow_type: Any) -> Any:
    """Return a type with string in place of types that no sample shows.

    Objects without fields are left out if they are fields, and become string if they are elements of an array.
    """
    if pa.types.is_struct(arrow_type):
        fields = [(field.name, _settled(field.type)) for field in arrow_type if field.type != pa.struct([])]
        return pa.struct(fields)
    if pa.types.is_list(arrow_type):
        element = _settled(arrow_type.value_type)
        return pa.list_(_STRING if element == pa.struct([]) else element)
    return _STRING if arrow_type == _UNKNOWN else arrow_type


def _field_count(arrow_type: Any) -> int:
    if pa.types.is_list(arrow_type):
        return _field_count(arrow_type.value_type)
    return sum(1 + _field_count(field.type) for field in arrow_type) if pa.types.is_struct(arrow_type) else 0
