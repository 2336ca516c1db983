"""The type of JSON bodies, inferred from a sample of the records that a read selects."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from pocketmq.spark_analytics.decoding.bodies import body_column
from pocketmq.spark_analytics.decoding.body_forms import BodyForm
from pocketmq.spark_analytics.decoding.body_types import ddl
from pocketmq.spark_analytics.decoding.json_bodies import inferred
from pocketmq.spark_analytics.reading.log_reader import BODY, LogReader, default_columns
from pocketmq.spark_analytics.reading.options import ReadOptions

log = logging.getLogger(__name__)

# Parts of the log that the sample is taken from, so that it has newer bodies as well as the oldest.
PARTS_MAX: Final = 8
_PLAIN: Final = BodyForm("plain")


def resolved(options: ReadOptions, columns: Sequence[str] | None = None) -> ReadOptions:
    """Return options in which the type of bodies is known, if these are among the columns, by default those of the options.

    Raises ValueError, MissingFileError, OSError.
    """
    form = options.body
    is_asked = BODY in (columns or options.columns or default_columns(options))
    if not is_asked or not form.is_inferred or options.is_aggregated:
        return options
    if form.topics:
        forms = {
            topic: resolved(replace(options, topics=frozenset({topic}), body=own), columns).body
            for topic, own in form.topics
        }
        return replace(options, body=BodyForm.by_topic(forms))
    bodies = list(_sample(options))
    arrow_type, count = inferred(bodies)
    whose = f" of {', '.join(sorted(options.topics))}" if options.topics else ""
    if not arrow_type.num_fields:
        raise ValueError(
            f"option bodySchema is infer: none of {len(bodies)} sampled bodies{whose} is a JSON object with fields"
        )
    log.warning(
        "the schema of bodies%s is inferred from a sample of %s records, of which %s are JSON objects; fields that the "
        "sample lacks are not read: bodySchema=%s",
        whose,
        f"{len(bodies):,}",
        f"{count:,}",
        ddl(arrow_type)[len("struct<") : -1],
    )
    return replace(options, body=form.typed(arrow_type))


def _sample(options: ReadOptions) -> Iterator[bytes]:
    """Yield the bodies of the first records of some parts of the log, spread evenly."""
    reader = LogReader(replace(options, body=_PLAIN, mode="DROPMALFORMED"), [body_column(_PLAIN)])
    splits = reader.splits()
    step = max(len(splits) / PARTS_MAX, 1)
    parts = [splits[int(part * step)] for part in range(min(len(splits), PARTS_MAX))]
    left = options.body.samples
    for index, split in enumerate(parts):
        share = -(-left // (len(parts) - index))
        for batch in reader.batches(split):
            taken = batch.column(0)[:share].to_pylist()
            yield from taken
            left, share = left - len(taken), share - len(taken)
            if not share:
                break
