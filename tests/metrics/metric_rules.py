"""The rules of `promtool check metrics` for names and metadata."""

import re

_ABBREVIATED = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "m", "h", "d"}
_OTHER_UNITS = {
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "kilobytes",
    "megabytes",
    "bits",
    "percent",
}
_TYPES = {"gauge", "counter", "summary", "histogram", "untyped"}


def problems_of(text):
    """Return (metric, problem) for each broken rule on a page."""
    helps = re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)
    types = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [(name, "no help text") for name, said in helps if not said.strip()]
    for rows, what in ((helps, "HELP"), (types, "TYPE")):
        names = [name for name, _ in rows]
        found += [(name, f"two lines {what}") for name in set(names) if names.count(name) > 1]
    if dict(helps).keys() != dict(types).keys():
        found.append(("", f"HELP or TYPE is missing for {dict(helps).keys() ^ dict(types).keys()}"))
    keys = [line.rpartition(" ")[0] for line in samples]
    found += [(key, "sample twice") for key in {key for key in keys if keys.count(key) > 1}]
    is_open = text.endswith("# EOF\n")
    for name, kind in types:
        found += [(name, problem) for problem in _of_name(name, kind, is_open)]
    for key in keys:
        labels = re.findall(r'(\w+)="', key.partition("{")[2])
        found += [
            (key, f"label {label} is not snake_case") for label in labels if not re.fullmatch(r"[a-z][a-z0-9_]*", label)
        ]
        name = re.sub(r"_(bucket|count|sum|total)$", "", key.partition("{")[0])
        if not {name, key.partition("{")[0]} & dict(types).keys():
            found.append((key, "sample without TYPE"))
    return found


def _of_name(name, kind, is_open):
    parts = name.split("_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        yield "not snake_case"
    if kind == "counter" and not is_open and parts[-1] != "total":
        yield 'counter metrics should have "_total" suffix'
    if kind != "counter" and parts[-1] == "total":
        yield 'non-counter metrics should not have "_total" suffix'
    if kind not in ("histogram", "summary") and parts[-1] in ("count", "sum", "bucket"):
        yield f"suffix _{parts[-1]} is that of histograms"
    if _TYPES & set(parts):
        yield "the name includes a type"
    if _ABBREVIATED & set(parts):
        yield "abbreviated unit"
    if _OTHER_UNITS & set(parts):
        yield "use base units"
