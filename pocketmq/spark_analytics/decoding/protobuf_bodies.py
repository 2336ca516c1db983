"""Protocol Buffers bodies as typed values, by a descriptor set (`protoc --include_imports --descriptor_set_out=FILE`).

A field that can be absent and is absent is null: messages, and scalars that are optional, of a oneof, or of proto2. Other
scalars have their default value, 0 or empty, as the language defines it.
"""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from pocketmq.spark_analytics.decoding.bodies import BodyError

_MESSAGES: Final = ("TYPE_MESSAGE", "TYPE_GROUP")
_ENUM: Final = "TYPE_ENUM"
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_OWN_FILES: Final = "google/protobuf/"
_SCALARS: Final = {
    "TYPE_BOOL": pa.bool_(),
    "TYPE_INT32": pa.int32(),
    "TYPE_SINT32": pa.int32(),
    "TYPE_SFIXED32": pa.int32(),
    "TYPE_UINT32": pa.int64(),
    "TYPE_FIXED32": pa.int64(),
    "TYPE_INT64": pa.int64(),
    "TYPE_SINT64": pa.int64(),
    "TYPE_SFIXED64": pa.int64(),
    "TYPE_UINT64": pa.decimal128(20, 0),
    "TYPE_FIXED64": pa.decimal128(20, 0),
    "TYPE_FLOAT": pa.float32(),
    "TYPE_DOUBLE": pa.float64(),
    "TYPE_STRING": pa.string(),
    "TYPE_BYTES": pa.binary(),
    _ENUM: pa.string(),
}
Convert = Callable[[Any], Any]


def arrow_type(descriptors: bytes, message: str) -> Any:
    """Return the struct type of a message. Raises ValueError, ImportError."""
    return _struct(_descriptor(descriptors, message), ())[0]


def decoder(descriptors: bytes, message: str) -> Callable[[bytes], Any]:
    """Return a function from a body to a message's values; it raises BodyError."""
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    descriptor = _descriptor(descriptors, message)
    parsed, values = GetMessageClass(descriptor).FromString, _struct(descriptor, ())[1]

    def decode(body: bytes) -> Any:
        try:
            return values(parsed(body))
        except DecodeError as error:
            raise BodyError(f"its body is not a {message}: {error}") from None

    return decode


def _descriptor(descriptors: bytes, message: str) -> Any:
    try:
        from google.protobuf import descriptor_pool
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ImportError("bodyAs=protobuf needs protobuf: pip install protobuf") from None
    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
    except DecodeError as error:
        raise ValueError(f"not a descriptor set of protoc: {error}") from None
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name in files:
        _add(pool, name, files, added)
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        known = sorted(f"{file.package}.{own.name}".strip(".") for file in files.values() for own in file.message_type)
        raise ValueError(f"no message {message} in the descriptor set: it has {', '.join(known)[:300]}") from None


def _add(pool: Any, name: str, files: dict[str, Any], added: set[str]) -> None:
    """Add a file after those that it imports."""
    if name in added:
        return
    added.add(name)
    file = files.get(name) or _own_file(name)
    for imported in file.dependency:
        _add(pool, imported, files, added)
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise ValueError(f"{name} of the descriptor set is invalid: {error}") from None


def _own_file(name: str) -> Any:
    """Return a file that comes with the library, such as that of Timestamp."""
    import importlib

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    file = FileDescriptorProto()
    try:
        if not name.startswith(_OWN_FILES):
            raise ImportError
        importlib.import_module(module).DESCRIPTOR.CopyToProto(file)
    except ImportError:
        raise ValueError(f"the descriptor set lacks {name}: make it with protoc --include_imports") from None
    return file


def _struct(descriptor: Any, within: tuple[str, ...]) -> tuple[Any, Convert]:
    """Return (type, function from a message to a dict); `within` are the names of the messages around it."""
    if descriptor.full_name in within:
        raise ValueError(f"the message {descriptor.full_name} contains itself, which Spark has no type for")
    fields, readers = [], []
    for field in descriptor.fields:
        own_type, convert = _field(field, (*within, descriptor.full_name))
        if own_type != pa.struct([]):  # Spark's files cannot have a struct without fields
            fields.append((field.name, own_type))
            readers.append((field.name, field.has_presence, convert))

    def values(message: Any) -> Any:
        return {
            name: None if has_presence and not message.HasField(name) else convert(getattr(message, name))
            for name, has_presence, convert in readers
        }

    return pa.struct(fields), values


def _field(field: Any, within: tuple[str, ...]) -> tuple[Any, Convert]:
    own = field.message_type
    if own is not None and own.GetOptions().map_entry:
        key_type, _ = _value(own.fields_by_name["key"], within)
        item_type, convert = _value(own.fields_by_name["value"], within)
        return pa.map_(key_type, item_type), lambda items: {key: convert(items[key]) for key in items}
    value_type, convert = _value(field, within)
    if field.is_repeated:
        return pa.list_(value_type), lambda values: [convert(value) for value in values]
    return value_type, convert


def _value(field: Any, within: tuple[str, ...]) -> tuple[Any, Convert]:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    kind = FieldDescriptorProto.Type.Name(field.type)
    if kind in _MESSAGES:
        if field.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", "UTC"), lambda time: time.seconds * 1_000_000 + time.nanos // 1000
        return _struct(field.message_type, within)
    if kind == _ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return _SCALARS[kind], lambda number: names.get(number, str(number))
    return _SCALARS[kind], lambda value: value
