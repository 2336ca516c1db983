"""Options of bodies: `bodyAs`, the options of typed bodies, and `bodyDecoders` by topic, made into a `BodyForm`."""

import json
from typing import Any, Final

from pocketmq.spark_analytics.decoding import avro_bodies, protobuf_bodies
from pocketmq.spark_analytics.decoding.body_forms import AVRO, JSON, PROTOBUF, STORED, TEXT_TYPES, BodyForm
from pocketmq.spark_analytics.decoding.body_types import of_ddl, of_spark
from pocketmq.spark_analytics.decoding.json_bodies import python_type
from pocketmq.store.offline.file_bytes import files_of

# Value of bodySchema for a schema that is inferred from a sample.
INFER: Final = "infer"
SAMPLES: Final = 1000
SAMPLES_MAX: Final = 100_000
_DECODER_OPTIONS: Final = ("bodyAs", "bodySchema", "bodyMessage", "inferSamples")
_DECODER_KINDS: Final = (*TEXT_TYPES, AVRO, PROTOBUF)
_DECODERS_EXAMPLE: Final = '{"Orders": {"bodyAs": "json", "bodySchema": "id bigint"}}'
SCHEMA_SIZE_MAX: Final = 16 << 20
# Kinds that need the option bodySchema -> its value, for errors.
SCHEMAS: Final = {AVRO: "an Avro schema in JSON, or its file", PROTOBUF: "the file of a descriptor set"}


def body_form(
    kind: str, schema: str | None, message: str | None, samples: int | None, decoders: str | None = None
) -> BodyForm:
    """Return the form of bodies for the values of their options, None for those not given.

    Files of schemas are read here, so that only the driver needs them. Raises ValueError, ImportError, OSError.
    """
    if decoders is not None:
        if (kind, schema, message, samples) != (STORED, None, None, None):
            raise ValueError("option bodyDecoders sets the decoding of each topic: omit bodyAs and the other body options")
        return BodyForm.by_topic(_forms(decoders))
    _check_together(kind, schema, message, samples)
    if schema is None:
        return BodyForm(kind)
    if kind == JSON:
        if _is_infer(schema):
            return BodyForm(kind, is_typed=True, samples=samples or SAMPLES)
        return BodyForm(kind, is_typed=True, arrow_type=json_type(schema))
    is_text = kind == AVRO and schema.startswith(("{", "[", '"'))
    content = schema.encode() if is_text else _content(schema)
    try:
        if kind == AVRO:
            arrow_type = avro_bodies.arrow_type(content.decode())
        else:
            arrow_type = protobuf_bodies.arrow_type(content, message or "")
        if not arrow_type.num_fields:
            raise ValueError("it has no fields")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"option bodySchema: {error}") from None
    return BodyForm(kind, is_typed=True, arrow_type=arrow_type, schema=content, message=message or "")


def _forms(decoders: str) -> dict[str, BodyForm]:
    """Return the forms by topic of the option bodyDecoders, a JSON object or its file. Raises the errors of body_form."""
    text = decoders if decoders.startswith("{") else _content(decoders, "bodyDecoders").decode(errors="replace")
    try:
        by_topic = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"option bodyDecoders is not JSON: {error}") from None
    if not isinstance(by_topic, dict) or not by_topic or not all(isinstance(own, dict) for own in by_topic.values()):
        raise ValueError(f"option bodyDecoders must be a JSON object such as {_DECODERS_EXAMPLE}")
    return {topic: _form(topic, own) for topic, own in by_topic.items()}


def _form(topic: str, given: dict[str, Any]) -> BodyForm:
    unknown = sorted(given.keys() - set(_DECODER_OPTIONS))
    schema, samples = given.get("bodySchema"), given.get("inferSamples")
    try:
        if unknown:
            raise ValueError(f"unknown option {unknown[0]}: known names are {', '.join(_DECODER_OPTIONS)}")
        if given.get("bodyAs") not in _DECODER_KINDS:
            raise ValueError(f"bodyAs is {given.get('bodyAs')}: it must be one of {', '.join(_DECODER_KINDS)}")
        if samples is not None and type(samples) is not int:
            raise ValueError(f"inferSamples is {samples}: it must be a number")
        for name in ("bodySchema", "bodyMessage"):
            if not isinstance(given.get(name), str | dict | list | None):
                raise ValueError(f"{name} is {given[name]}: it must be a text")
        schema = json.dumps(schema) if isinstance(schema, dict | list) else schema
        return body_form(given["bodyAs"], schema, given.get("bodyMessage"), samples)
    except ValueError as error:
        raise ValueError(f"option bodyDecoders, topic {topic}: {error}") from None


def _check_together(kind: str, schema: str | None, message: str | None, samples: int | None) -> None:
    if samples is not None and not (kind == JSON and schema is not None and _is_infer(schema)):
        raise ValueError(f"option inferSamples needs bodyAs={JSON} and bodySchema={INFER}")
    if samples is not None and not 0 < samples <= SAMPLES_MAX:
        raise ValueError(f"option inferSamples is {samples}: it must be from 1 to {SAMPLES_MAX}")
    if schema is None and kind in SCHEMAS:
        raise ValueError(f"bodyAs={kind} needs the option bodySchema: {SCHEMAS[kind]}")
    if schema is not None and kind not in (JSON, *SCHEMAS):
        raise ValueError(f"option bodySchema needs bodyAs={JSON}, {' or '.join(SCHEMAS)}, bodyAs is {kind}")
    if (kind == PROTOBUF) != (message is not None):
        raise ValueError(
            f"bodyAs={PROTOBUF} needs the option bodyMessage: the message's full name, such as shop.Order"
            if message is None
            else f"option bodyMessage needs bodyAs={PROTOBUF}, bodyAs is {kind}"
        )


def _is_infer(schema: str) -> bool:
    return schema.lower() == INFER


def _content(path: str, option: str = "bodySchema") -> bytes:
    """Return the content of the file that an option names. Raises ValueError, OSError."""
    files = files_of(path)
    if not files.is_file(path):
        raise FileNotFoundError(f"option {option}: there is no file {path}")
    size = files.size(path)
    if size > SCHEMA_SIZE_MAX:
        raise ValueError(f"option {option}: {path} has {size} bytes, at most {SCHEMA_SIZE_MAX} are read")
    with files.open(path) as data:
        return data.read(0, size).tobytes()


def json_type(schema: Any) -> Any:
    """Return the struct type of JSON bodies from a DDL string, Spark's JSON notation, or a type. Raises ValueError."""
    try:
        if isinstance(schema, str):
            schema = of_spark(json.loads(schema)) if schema.lstrip().startswith("{") else of_ddl(schema)
        python_type(schema)  # refuses types that JSON has no values of
    except (ValueError, RecursionError) as error:
        raise ValueError(f"option bodySchema: {error}") from None
    return schema
