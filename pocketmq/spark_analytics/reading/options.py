"""Options of the data source, validated once into `ReadOptions`.

Spark passes options as strings with lower-case names. The argument of load() arrives as `path`, a list of several as
`paths`, a JSON array; commas separate paths in both. An invalid value is refused with an error that names the option, the
allowed values and the value. An unknown option name is refused, too, because a filter that is silently ignored gives wrong
results.
"""

import difflib
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from pocketmq.spark_analytics.decoding.body_forms import BodyForm
from pocketmq.spark_analytics.reading.body_options import body_form
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels
from pocketmq.store.offline.file_bytes import local_path
from pocketmq.store.offline.places import separate_paths

MODES: Final = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
BODIES: Final = ("stored", "plain", "string", "json", "avro", "protobuf")
OPTIONS: Final = (
    *("path", "paths", "table", "columns", "topic", "queueId", "groupBy", "aggregates"),
    *("startingTimestamp", "endingTimestamp", "startingOffset", "endingOffset"),
    *(
        "bodyAs",
        "bodySchema",
        "bodyMessage",
        "bodyDecoders",
        "inferSamples",
        "mode",
        "columnNameOfCorruptRecord",
        "delayLevel",
    ),
    *("maxPartitionBytes", "pushFilters", "ignoreMissingFiles", "ignoreUnknownTopics", "reader"),
    *("brokerNames", "dropReplicas"),
)
# Options of readStream only.
STREAM_OPTIONS: Final = ("startingOffsets", "maxBytesPerTrigger", "maxRecordsPerTrigger", "failOnDataLoss")
# Starting a task has a fixed cost, so small splits are merged.
SPLIT_SIZE_MIN: Final = 128 << 20
SPLIT_SIZE_MAX: Final = 512 << 20
TASKS_A_PROCESSOR: Final = 2
# An aggregating task has little per-record cost, so fewer and larger tasks are better.
AGGREGATED_SPLIT_SIZE_MAX: Final = 1 << 30
INT64_MAX: Final = 2**63 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NO_CREATE_TABLE: Final = (
    "CREATE TABLE ... USING rocketmq is not possible: when the table is read, Spark does not pass its path and options to a "
    "data source written in Python. Use CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (path '/path/of/the/store')"
)

T = TypeVar("T")
_SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_NUMBER: Final = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read, with defaults; None means no limit.

    Offsets are physical offsets, times are microseconds since 1970; `starting` is inclusive, `ending` exclusive.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    group_by: tuple[str, ...]
    aggregates: tuple[str, ...]
    topics: frozenset[str] | None
    queue_ids: frozenset[int] | None
    starting_timestamp_us: int | None
    ending_timestamp_us: int | None
    starting_offset: int | None
    ending_offset: int | None
    body: BodyForm
    mode: str
    corrupt_record_column: str
    delay_levels: DelayLevels
    given_split_size: int | None
    push_filters: bool
    ignore_missing_files: bool
    ignore_unknown_topics: bool
    broker_names: Mapping[str, str]
    """Names given by the user, by the stores' paths."""
    drop_replicas: bool

    @property
    def is_one_store(self) -> bool:
        """Whether one path is named, which is not a glob."""
        return len(self.paths) == 1 and not glob.has_magic(self.paths[0])

    @property
    def is_aggregated(self) -> bool:
        """Whether rows are groups rather than messages."""
        return bool(self.group_by or self.aggregates)

    def split_size(self, total_size: int) -> int:
        """Return the bytes per task for `total_size` bytes in all: an even share for this machine's processors, within
        limits.

        A data source in Python is not told how many processors Spark has.
        """
        tasks, size_max = (1, AGGREGATED_SPLIT_SIZE_MAX) if self.is_aggregated else (TASKS_A_PROCESSOR, SPLIT_SIZE_MAX)
        share = -(-total_size // (tasks * (os.cpu_count() or 1)))
        return self.given_split_size or min(max(share, SPLIT_SIZE_MIN), size_max)


def read_options(options: Mapping[str, str], more: Iterable[str] = ()) -> ReadOptions:
    """Validate options as Spark passes them. `more`: names of options that are handled elsewhere. Raises ValueError."""
    given = {name.lower(): value for name, value in options.items()}
    if {"owner", "provider"} <= given.keys():
        raise ValueError(NO_CREATE_TABLE)
    refuse_unknown(given, (*OPTIONS, *more))
    read = OptionParser(given)
    asked = ReadOptions(
        paths=read.paths(),
        columns=read.parsed("columns", _names) or (),
        group_by=read.parsed("groupBy", _names) or (),
        aggregates=read.parsed("aggregates", _names) or (),
        topics=read.parsed("topic", lambda name, value: frozenset(_names(name, value))),
        queue_ids=read.parsed("queueId", lambda name, value: frozenset(_whole(name, part) for part in _names(name, value))),
        starting_timestamp_us=read.parsed("startingTimestamp", _timestamp_us),
        ending_timestamp_us=read.parsed("endingTimestamp", _timestamp_us),
        starting_offset=read.parsed("startingOffset", _whole),
        ending_offset=read.parsed("endingOffset", _whole),
        body=body_form(
            read.one_of("bodyAs", BODIES),
            read.text("bodySchema"),
            read.text("bodyMessage"),
            read.parsed("inferSamples", _whole),
            read.text("bodyDecoders"),
        ),
        mode=read.one_of("mode", MODES),
        corrupt_record_column=read.text("columnNameOfCorruptRecord") or "_corrupt_record",
        delay_levels=DelayLevels(read.text("delayLevel") or DEFAULT_MESSAGE_DELAY_LEVEL),
        given_split_size=read.parsed("maxPartitionBytes", byte_size),
        push_filters=read.flag("pushFilters"),
        ignore_missing_files=read.flag("ignoreMissingFiles"),
        ignore_unknown_topics=read.flag("ignoreUnknownTopics"),
        broker_names=read.broker_names(),
        drop_replicas=read.flag("dropReplicas", "true"),
    )
    if asked.is_aggregated and (asked.columns or asked.mode == "PERMISSIVE"):
        raise ValueError("options groupBy and aggregates cannot be combined with columns or mode PERMISSIVE")
    _check_order("Timestamp", asked.starting_timestamp_us, asked.ending_timestamp_us, given)
    _check_order("Offset", asked.starting_offset, asked.ending_offset, given)
    return asked


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for the first of `names` (lower case) that is not an option; suggest the nearest one."""
    known = tuple(known)
    lower = {one.lower() for one in known}
    for name in names:
        if name not in lower:
            raise ValueError(f"unknown option {name}: {nearest(name, known)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `did you mean X?`, or the list of all known names if none is similar."""
    known_by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), known_by_lower, 1)
    if found:
        return f"did you mean {known_by_lower[found[0]]}?"
    return f"known names are {', '.join(known_by_lower.values())}"


class OptionParser:
    """Parser for option values; each method raises ValueError."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def parsed(self, name: str, parse: Callable[[str, str], T]) -> T | None:
        """Return what `parse` makes of an option's name and value, None if the option is not given."""
        value = self.text(name)
        return None if value is None else parse(name, value)

    def paths(self) -> tuple[str, ...]:
        named = [self._given["path"]] if self._given.get("path") else []
        several = self._given.get("paths")
        if several is not None:
            try:
                named += json.loads(several)
            except (ValueError, TypeError):
                raise ValueError(f"option paths is {several!r}: it must be a JSON array of strings") from None
        if not named or not all(isinstance(path, str) and path for path in named):
            raise ValueError(
                'no store given: use load("/path/of/the/store"), or a list of paths; in SQL CREATE TEMPORARY VIEW ... USING '
                "rocketmq OPTIONS (path '/path/of/the/store'), as Spark does not pass a TABLE's path to sources in Python"
            )
        paths = tuple(path for text in named for path in separate_paths(text))
        if not all(paths):
            raise ValueError(f"option path is {', '.join(named)!r}: it must be a comma-separated list of paths")
        return paths

    def broker_names(self) -> dict[str, str]:
        text = self.text("brokerNames")
        try:
            names = json.loads(text or "{}")
        except ValueError:
            names = None
        if not isinstance(names, dict) or not all(isinstance(name, str) and name for name in names.values()):
            raise ValueError(f"option brokerNames is {text!r}: it must be a JSON object of stores' paths and names")
        return {local_path(store).rstrip("/"): name for store, name in names.items()}

    def one_of(self, name: str, values: tuple[str, ...]) -> str:
        """Return the matching one of `values`, ignoring case; the first is the default."""
        value = self.text(name) or values[0]
        for known in values:
            if value.lower() == known.lower():
                return known
        raise ValueError(f"option {name} is {value}: it must be one of {', '.join(values)}")

    def flag(self, name: str, default: str = "false") -> bool:
        value = self.text(name) or default
        if value.lower() not in ("true", "false"):
            raise ValueError(f"option {name} is {value!r}: it must be true or false")
        return value.lower() == "true"


def _names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(","))
    if not all(names):
        raise ValueError(f"option {name} is {value!r}: it must be a comma-separated list of names")
    return names


def byte_size(name: str, value: str) -> int:
    """Return the bytes of a size such as `128m`. Raises ValueError."""
    match = _SIZE.fullmatch(value)
    if match is None or not int(match[1]):
        raise ValueError(f"option {name} is {value!r}: it must be a positive size such as 134217728 or 128m")
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


def _timestamp_us(name: str, value: str) -> int:
    if _NUMBER.fullmatch(value):
        return min(_whole(name, value) * 1000, INT64_MAX)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"option {name} is {value!r}: it must be ms since 1970, or a time such as 2026-11-21T17:39:39.542Z"
        ) from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def _whole(name: str, value: str) -> int:
    if not _NUMBER.fullmatch(value) or int(value) > INT64_MAX:
        raise ValueError(f"option {name} is {value!r}: it must be an integer from 0 to {INT64_MAX}")
    return int(value)


def _check_order(kind: str, starting: int | None, ending: int | None, given: Mapping[str, str]) -> None:
    if starting is not None and ending is not None and starting > ending:
        first, second = (given[f"{side}{kind}".lower()] for side in ("starting", "ending"))
        raise ValueError(f"option starting{kind} is {first}: it must not be greater than ending{kind}, {second}")
