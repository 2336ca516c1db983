"""Options of bodies: `bodyAs` and the options of typed bodies, made into a `BodyForm`."""

import json
from typing import Any, Final

from pocketmq.spark_analytics.decoding.body_forms import JSON, BodyForm
from pocketmq.spark_analytics.decoding.body_types import of_ddl, of_spark
from pocketmq.spark_analytics.decoding.json_bodies import check_type

# Value of bodySchema for a schema from a sample.
INFER: Final = "infer"
SAMPLES: Final = 1000
SAMPLES_MAX: Final = 100_000


def body_form(kind: str, schema: str | None, samples: int | None) -> BodyForm:
    """Return the form of bodies for the values of their options, None for those not given. Raises ValueError."""
    is_inferred = kind == JSON and schema is not None and schema.lower() == INFER
    if samples is not None and not is_inferred:
        raise ValueError(f"option inferSamples needs bodyAs={JSON} and bodySchema={INFER}")
    if samples is not None and not 0 < samples <= SAMPLES_MAX:
        raise ValueError(f"option inferSamples is {samples}: it must be from 1 to {SAMPLES_MAX}")
    if is_inferred:
        return BodyForm(kind, is_typed=True, samples=samples or SAMPLES)
    if schema is None:
        return BodyForm(kind)
    if kind != JSON:
        raise ValueError(f"option bodySchema needs bodyAs={JSON}, bodyAs is {kind}")
    return BodyForm(kind, is_typed=True, arrow_type=json_type(schema))


def json_type(schema: Any) -> Any:
    """Return the struct type of JSON bodies from a DDL string, Spark's JSON notation, or a type. Raises ValueError."""
    try:
        if isinstance(schema, str):
            schema = of_spark(json.loads(schema)) if schema.lstrip().startswith("{") else of_ddl(schema)
        check_type(schema)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"option bodySchema: {error}") from None
    return schema
