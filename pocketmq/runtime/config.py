"""Binding of key/value text to config classes.

A config class is a plain `@dataclass`: snake_case fields with defaults, whose key in files is the camelCase of the field, or
the one given by `setting(default, key="brokerIP1")`. Types: int, float, bool, str, an Enum (by name), each also `| None`
(an empty value). One file may bind to several classes, as Apache's broker.conf does; undeclared keys are reported.
"""

import copy
import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

VALUE_SIZE_MAX: Final = 200
"""Maximum number of characters of an invalid key or value shown in an error."""
PROBLEMS_MAX: Final = 20
"""Maximum number of refused keys listed in an error."""


class ConfigError(ValueError):
    """One or more invalid values. The text has one line for each, with key, value and the expected form."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class KeyRefused(ConfigError):
    """A key that does not exist or that cannot be changed while running."""


@dataclasses.dataclass
class BindReport:
    """Keys of the file that were not bound, in the order of the file."""

    unknown: dict[str, str] = dataclasses.field(default_factory=dict)
    """Unknown keys -> the most similar known key, or an empty text."""
    ignored: dict[str, str] = dataclasses.field(default_factory=dict)
    """Apache's keys without effect in PocketMQ -> reason."""

    def lines(self) -> list[str]:
        """Return one readable sentence per key."""
        return self.unknown_lines(": ignored") + [f"key {key}: ignored: {why}" for key, why in self.ignored.items()]

    def unknown_lines(self, what: str = "") -> list[str]:
        """Return a sentence for each unknown key; `what` is appended to the key, such as `: ignored`."""
        return [unknown_key(key, near, what) for key, near in self.unknown.items()]


def unknown_key(key: str, near: str, what: str = "") -> str:
    """Return the sentence for an unknown key; `near` is the key that was probably meant, or empty."""
    return f"unknown key {key[:VALUE_SIZE_MAX]}{what}" + (f"; did you mean {near}?" if near else "")


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the known key most similar to `key`, ignoring case; an empty text if none is similar."""
    import difflib  # imported here, because it is needed only for unknown keys

    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(key[:VALUE_SIZE_MAX].lower(), by_lower, 1)
    return by_lower[near[0]] if near else ""


class Item(NamedTuple):
    """One declared key of a config class."""

    key: str
    name: str
    kind: type
    is_optional: bool
    low: float | None
    high: float | None
    is_important: bool
    is_secret: bool

    def expected(self) -> str:
        """Describe the accepted values in words."""
        if self.kind is bool:
            return "true or false"
        if issubclass(self.kind, Enum):
            return "one of " + ", ".join(self.kind.__members__)
        return range_text(self.kind, self.low, self.high)

    def parse(self, text: str) -> Any:
        """Return the typed value. Raises ConfigError with key, value and the expected form."""
        stripped = text.strip()
        if self.is_optional and not stripped:
            return None
        try:
            value = _parsers.get(self.kind, self._member)(stripped)
        except (KeyError, ValueError):
            value = None
        if value is None or not is_within(value, self.low, self.high):
            raise ConfigError([f"{self.key}={text[:VALUE_SIZE_MAX]}: expected {self.expected()}"])
        return value

    def _member(self, text: str) -> Any:
        return typing.cast("type[Enum]", self.kind)[text.upper()]


def range_text(kind: type, low: float | None, high: float | None) -> str:
    """Describe the values of a kind within inclusive limits in words."""
    words = {int: "a whole number", float: "a number"}.get(kind, "text")
    least, most = (limit if limit is None or isinstance(limit, int) else f"{limit:g}" for limit in (low, high))
    if least is not None and most is not None:
        return f"{words} from {least} to {most}"
    if least is not None:
        return f"{words} not below {least}"
    return words if most is None else f"{words} not above {most}"


def is_within(value: Any, low: float | None, high: float | None) -> bool:
    """Return whether a value is within inclusive limits; NaN never is."""
    return value == value and (low is None or value >= low) and (high is None or value <= high)


_parsers: dict[type, Any] = {
    int: int,
    float: float,
    str: str,
    bool: lambda text: {"true": True, "false": False}[text.lower()],
}


def setting(
    default: Any,
    *,
    key: str | None = None,
    low: float | None = None,
    high: float | None = None,
    important: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a config field with more than a default value.

    `key` replaces the derived key; `low` and `high` are inclusive limits; an `important` key is listed by `-m`; the value of
    a `secret` key is never listed.
    """
    metadata = {"key": key, "low": low, "high": high, "important": important, "secret": secret}
    return dataclasses.field(default=default, metadata=metadata)


def camel(name: str) -> str:
    """`store_path_root_dir` -> `storePathRootDir`."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


_items: dict[type[Any], dict[str, Item]] = {}


def items_of(declared: type[Any]) -> dict[str, Item]:
    """Return the items of a config class by key, in order of declaration."""
    known = _items.get(declared)
    if known is not None:
        return known
    hints = typing.get_type_hints(declared)
    table: dict[str, Item] = {}
    for field in dataclasses.fields(declared):
        kind, is_optional = _kind(hints[field.name])
        metadata = field.metadata
        key = metadata.get("key") or camel(field.name)
        limits = metadata.get("low"), metadata.get("high")
        flags = bool(metadata.get("important")), bool(metadata.get("secret"))
        table[key] = Item(key, field.name, kind, is_optional, *limits, *flags)
    _items[declared] = table
    return table


def _kind(annotation: Any) -> tuple[type, bool]:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        kinds = [option for option in typing.get_args(annotation) if option is not types.NoneType]
        assert len(kinds) == 1, f"{annotation} is not one type or None"
        return kinds[0], True
    assert annotation in _parsers or issubclass(annotation, Enum), f"{annotation} cannot be read from a config file"
    return annotation, False


def bind(
    classes: Sequence[type[Any]], properties: Mapping[str, str], ignored: Mapping[str, str] | None = None
) -> tuple[list[Any], BindReport]:
    """Create an instance of each of `classes` from `properties`; a key declared by several of them is set in each.

    `ignored` maps keys without effect to the reason. Returns the instances, in order, and a report. Raises ConfigError
    listing every invalid value.
    """
    ignored = ignored or {}
    tables = [items_of(cls) for cls in classes]
    values: list[dict[str, Any]] = [{} for _ in classes]
    for index, item, value in _parsed(tables, properties):
        values[index][item.name] = value
    known = [*(key for table in tables for key in table), *ignored]
    unknown = [key for key in properties if key not in known]
    report = BindReport(
        {key: nearest(key, known) if index < PROBLEMS_MAX else "" for index, key in enumerate(unknown)},
        {key: ignored[key] for key in properties if key in ignored and not any(key in table for table in tables)},
    )
    return [cls(**into) for cls, into in zip(classes, values, strict=True)], report


def _parsed(tables: Sequence[Mapping[str, Item]], texts: Mapping[str, str]) -> list[tuple[int, Item, Any]]:
    """Return (index of the table, item, value) of each key that a table has. Raises ConfigError for the invalid ones."""
    rows: list[tuple[int, Item, Any]] = []
    problems: dict[str, None] = {}
    for key, text in texts.items():
        for index, table in enumerate(tables):
            if key in table:
                try:
                    rows.append((index, table[key], table[key].parse(text)))
                except ConfigError as error:
                    problems |= dict.fromkeys(error.problems)
    if problems:
        raise ConfigError(list(problems))
    return rows


class Update:
    """A change of live configs that has been checked, and is to be applied."""

    def __init__(self, configs: Sequence[Any], rows: Sequence[tuple[int, Item, Any]]) -> None:
        self.changed = [copy.copy(config) for config in configs]
        """Copies of the configs with the new values."""
        self.texts: dict[str, str] = {}
        """Key -> new value, as in a config file."""
        for index, item, value in rows:
            setattr(self.changed[index], item.name, value)
            self.texts[item.key] = _text(value)
        self._configs = configs
        self._rows = rows

    def apply(self) -> dict[str, Any]:
        """Change the live configs. Returns key -> new value."""
        for index, item, value in self._rows:
            setattr(self._configs[index], item.name, value)
        return {item.key: value for _, item, value in self._rows}


def plan_update(
    configs: Iterable[Any],
    changes: Mapping[str, str],
    allowed: frozenset[str] | set[str],
    check: Callable[..., None] | None = None,
    ignored: Mapping[str, str] | None = None,
) -> Update:
    """Return the change of live configs by all of `changes`; nothing is changed yet.

    `check` is called with a copy of each config that has the new values; any exception it raises refuses the whole change.
    It is the check used at start, so that a value which would prevent the next start is not accepted while running.
    `ignored` maps keys without effect to the reason. Raises KeyRefused naming each key that no config declares or that is
    not in `allowed`, else ConfigError naming each invalid value.
    """
    configs = list(configs)
    tables = [items_of(type(config)) for config in configs]
    refused = _refused_keys(changes, {key for table in tables for key in table}, allowed, ignored or {})
    if refused:
        more = [f"and {len(refused) - PROBLEMS_MAX} more"] if len(refused) > PROBLEMS_MAX else []
        raise KeyRefused(refused[:PROBLEMS_MAX] + more)
    planned = Update(configs, _parsed(tables, changes))
    if check is not None:
        check(*planned.changed)
    return planned


def _refused_keys(
    changes: Iterable[str], declared: set[str], allowed: frozenset[str] | set[str], ignored: Mapping[str, str]
) -> list[str]:
    refused = []
    for key in changes:
        if key in declared and key not in allowed:
            refused.append(f"key {key} cannot be changed while running")
        elif key not in declared and key in ignored:
            refused.append(f"key {key} has no effect here: {ignored[key]}")
        elif key not in declared:
            near = nearest(key, [*declared, *ignored]) if len(refused) < PROBLEMS_MAX else ""
            refused.append(unknown_key(key, near))
    return refused


def to_properties(configs: Iterable[Any], important: bool = False) -> dict[str, str]:
    """Return the keys of `configs` with their values as text (secrets as asterisks); `important`: only important ones."""
    return {
        item.key: _text("******" if item.is_secret and getattr(config, item.name) else getattr(config, item.name))
        for config in configs
        for item in items_of(type(config)).values()
        if item.is_important or not important
    }


def print_items(configs: Iterable[Any], important: bool = False) -> str:
    """Return the output of `-p`, or of `-m`: `key=value` lines."""
    return "".join(f"{key}={value}\n" for key, value in to_properties(configs, important).items())


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Enum) else str(value)
