"""Plots as inline SVG: small, reproducible, in the page's own font and colours.

Matplotlib cannot use colours named in a style sheet, so it draws with placeholder colours that are then replaced by
`var(--...)`; one picture thus serves light and dark mode. Labels are untrusted text: none is parsed as mathematics, and
characters that XML does not allow are replaced.
"""

import io
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, MultipleLocator

# As wide as a phone is in points, so that texts are not scaled down there.
WIDTH_IN: Final = 5.2
SERIES: Final = 8
LABEL_LENGTH_MAX: Final = 28
INK, FAINT = "#fe0100", "#fe0101"
_STAND_IN: Final = re.compile("#fe00([0-9a-f]{2})|#fe01(00|01)")
_SETTINGS: Final[Any] = {
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "rocketmq",
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def series(number: int) -> str:
    """Return the placeholder colour of a series; colours repeat after SERIES."""
    return f"#fe00{number % SERIES:02x}"


@contextmanager
def _axes(name: str, height_in: float) -> Iterator[tuple[Any, list[str]]]:
    """Yield (axes to draw on, list that receives the finished SVG)."""
    made: list[str] = []
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # Texts are measured in a Matplotlib font that lacks some characters; browsers have fonts for these.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield axes, made
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    made.append(_inline(written.getvalue(), name))


def _inline(svg: str, name: str) -> str:
    """Return the SVG element alone; identifiers are prefixed with `name`, as a page has many pictures."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    head, rest = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head) + f' role="img" aria-label="{name}"'

    def variable(found: re.Match[str]) -> str:
        return f"var(--series-{int(found[1], 16)})" if found[1] else ("var(--ink)" if found[2] == "00" else "var(--faint)")

    return head + ">" + _STAND_IN.sub(variable, rest)


def visible(text: Any) -> str:
    """Return an untrusted text without characters that a page or an SVG may not contain."""
    return "".join(char if unicodedata.category(char)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def label(text: Any) -> str:
    """Return a shortened version of an untrusted text."""
    shown = visible(text)
    return shown if len(shown) <= LABEL_LENGTH_MAX else shown[: LABEL_LENGTH_MAX - 1] + "…"


def in_unit(value: float, units: Iterable[tuple[float, str]], least: str) -> str:
    """Format a value in the first unit that is not greater; `least` is the text for smaller values."""
    return next((f"{value / size:.3g} {unit}" for size, unit in units if abs(value) >= size), least)


def amount(value: float, position: int = 0) -> str:
    """Format a number with a unit prefix: 1200000 -> 1.2 M."""
    return in_unit(value, ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")), f"{value:.3g}")


def byte_size(value: float, position: int = 0) -> str:
    """Format a size in a suitable unit."""
    units = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    return in_unit(value, units, f"{value:.0f} B")


def _byte_ticks(largest: float) -> Locator:
    """Return a locator of about three ticks at multiples of a power of two: round numbers in KiB, MiB, GiB."""
    step = 2 ** math.floor(math.log2(max(largest, 4) / 3))
    return MultipleLocator(step if largest / step <= 4.5 else 2 * step)


def bars(
    name: str, rows: Sequence[tuple[str, Sequence[float]]], kinds: Sequence[str], unit: str, *, of_bytes: bool = False
) -> str:
    """Draw a stacked bar per row, with a segment for each of `kinds`; `unit` is the axis label."""
    with _axes(name, 0.6 + 0.24 * max(len(rows), 2)) as (axes, made):
        places = range(len(rows))
        begins = [0.0] * len(rows)
        for number, kind in enumerate(kinds):
            values = [row[1][number] for row in rows]
            axes.barh(places, values, left=begins, color=series(number), height=0.7, label=label(kind))
            begins = [begin + value for begin, value in zip(begins, values, strict=True)]
        axes.set_yticks(places, [label(row[0]) for row in rows])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.xaxis.set_major_locator(_byte_ticks(max(begins)) if of_bytes else MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(byte_size if of_bytes else amount))
        axes.set_xlabel(unit)
        if len(kinds) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    return made[0]


def columns_in_time(
    name: str,
    times: Sequence[datetime],
    values: Sequence[tuple[str, Sequence[float]]],
    unit: str,
    width: timedelta,
) -> str:
    """Draw a stacked column of `width` for each of `times`; `values` are (label, value at each time)."""
    with _axes(name, 2.2 + 0.16 * (len(values) // 2)) as (axes, made):
        below = [0.0] * len(times)
        for number, (kind, own) in enumerate(values):
            # The first eight series are coloured; all others are faint.
            colour = series(number) if number < SERIES else FAINT
            axes.bar(times, own, bottom=below, width=width * 0.92, align="edge", color=colour, label=label(kind))
            below = [low + value for low, value in zip(below, own, strict=True)]
        # A single column would otherwise be as wide as the plot.
        lone = max(timedelta(0), 6 * width - (times[-1] - times[0])) / 2
        axes.set_xlim(times[0] - lone - width / 2, times[-1] + lone + 1.5 * width)
        _time_axis(axes)
        axes.grid(False, axis="x")
        _value_axis(axes, unit)
        if len(values) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return made[0]


def lines(
    name: str, times: Sequence[datetime], values: Sequence[tuple[str, Sequence[float]]], unit: str, target: float | None
) -> str:
    """Draw a line through the values at each of `times` for each series, and a dashed one at `target`."""
    with _axes(name, 2.6) as (axes, made):
        for number, (kind, own) in enumerate(values):
            axes.plot(times, own, color=series(number), marker="o", markersize=3, linewidth=1.5, label=label(kind))
        if target is not None:
            axes.axhline(target, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=f"target {target:g}")
        lone = timedelta(minutes=3) if times[0] == times[-1] else timedelta(0)
        axes.set_xlim(times[0] - lone, times[-1] + lone + (times[-1] - times[0]) * 0.02)
        axes.set_ylim(bottom=min(0.0, *(value for _, own in values for value in own)))
        _time_axis(axes)
        _value_axis(axes, unit)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
    return made[0]


def _time_axis(axes: Any) -> None:
    locator = AutoDateLocator(minticks=2, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_xlabel("UTC")


def _value_axis(axes: Any, unit: str, *, integer: bool = False) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=integer))
    axes.yaxis.set_major_formatter(FuncFormatter(amount))
    axes.set_ylabel(unit)


def histogram(name: str, counts: Sequence[tuple[str, float]], unit: str, axis_label: str) -> str:
    """Draw a column for each bucket, in the given order; `axis_label` is the label of the bucket axis."""
    with _axes(name, 2.3) as (axes, made):
        axes.bar(range(len(counts)), [count for _, count in counts], width=0.92, color=series(0))
        step = max(1, -(-len(counts) // 12))
        axes.set_xticks(range(0, len(counts), step), [label(text) for text, _ in counts[::step]])
        axes.grid(False, axis="x")
        _value_axis(axes, unit, integer=True)
        axes.set_xlabel(axis_label)
    return made[0]
