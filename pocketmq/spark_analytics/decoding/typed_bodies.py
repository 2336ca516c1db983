"""Bodies decoded by a schema into an Arrow array.

Bodies are decoded one by one into Python values, and these in portions into Arrow, since the values take several times the
memory of the bytes.
"""

from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

import pyarrow as pa

from pocketmq.spark_analytics.decoding import avro_bodies, json_bodies, protobuf_bodies
from pocketmq.spark_analytics.decoding import body_forms as forms
from pocketmq.spark_analytics.decoding.bodies import BodyError, json_text, plain_bodies
from pocketmq.spark_analytics.decoding.body_forms import BodyForm
from pocketmq.spark_analytics.decoding.columns import Records

# Clients limit bodies to 4 MiB. A body's values take several times its size, so the limit is lower than for bytes.
TYPED_SIZE_MAX: Final = 16 << 20
_PORTION_SIZE: Final = 1 << 20
_REASON_SIZE_MAX: Final = 300

# From a topic and a body to a value.
Decode = Callable[[str, bytes], Any]


def decoder_of(form: BodyForm) -> Decode:
    """Return the function that decodes a body in a typed form; it raises BodyError."""
    if form.topics:
        decoders = {topic: decoder_of(own) for topic, own in form.topics}
        # All fields are null for other topics.
        return lambda topic, body: {topic: decoders[topic](topic, body)} if topic in decoders else {}
    own = _decoder(form)

    def decode(topic: str, body: bytes) -> Any:
        if form.is_typed and len(body) > TYPED_SIZE_MAX:
            raise BodyError(f"its body has {len(body)} bytes, bodies with a schema may have {TYPED_SIZE_MAX}")
        return own(body)

    return decode


def _decoder(form: BodyForm) -> Callable[[bytes], Any]:
    match form.kind:
        case "plain":
            return bytes
        case "string":
            return lambda body: body.decode(errors="replace")
        case forms.JSON if not form.is_typed:
            return json_text
        case forms.AVRO:
            return avro_bodies.decoder(form.schema.decode())
        case forms.PROTOBUF:
            return protobuf_bodies.decoder(form.schema, form.message)
    return json_bodies.decoder(form.arrow_type)


def decode(records: Records, form: BodyForm, decode_body: Decode) -> None:
    """Decode the decompressed bodies of some records into `typed`, with the reasons of failures in `body_damage`."""
    reasons: dict[int, str] = {}
    arrays: list[Any] = []
    values: list[Any] = []
    first, size = 0, 0
    topics = records.topic_column.to_pylist() if form.topics else repeat("", len(records))
    for row, (topic, body) in enumerate(zip(topics, plain_bodies(records).to_pylist(), strict=False)):
        try:
            if body is None:
                raise BodyError("its body cannot be decompressed")
            values.append(decode_body(topic, body))
            size += len(body)
        except BodyError as error:
            reasons[row] = str(error)[:_REASON_SIZE_MAX]
            values.append(None)
        if size >= _PORTION_SIZE:
            arrays.append(_array(values, form.arrow_type, first, reasons))
            values, first, size = [], row + 1, 0
    records.typed = pa.concat_arrays([*arrays, _array(values, form.arrow_type, first, reasons)])
    records.body_damage = reasons


def _array(values: list[Any], arrow_type: Any, first: int, reasons: dict[int, str]) -> Any:
    """Return values, which begin at row `first`, as an Arrow array with null for those that do not fit the type."""
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):
        arrays = []
        for row, value in enumerate(values, first):
            try:
                arrays.append(pa.array([value], arrow_type))
            except (pa.ArrowException, ValueError, OverflowError) as error:
                reasons[row] = f"its body does not fit its schema: {error}"[:_REASON_SIZE_MAX]
                arrays.append(pa.nulls(1, arrow_type))
        return pa.concat_arrays(arrays)
