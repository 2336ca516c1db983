"""A line plot as SVG, written without a plotting library."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path
from typing import Final

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 44
COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
MARKS: Final = 5
"""Number of labelled lines of the vertical axis above zero."""

Points = Sequence[tuple[float, float]]


def write_plot(
    path: Path, title: str, x_name: str, y_name: str, lines: Mapping[str, Points], *, is_logarithmic: bool = False
) -> None:
    """Draw lines from zero on; the horizontal axis is labelled at the points, and begins at 1 if it `is_logarithmic`."""
    scaled: Callable[[float], float] = log10 if is_logarithmic else float
    x_most = scaled(max(x for points in lines.values() for x, _ in points))
    step = _step(max(y for points in lines.values() for _, y in points))
    y_most = step * MARKS

    def x_at(value: float) -> float:
        return LEFT + scaled(value) / x_most * (WIDTH - LEFT - RIGHT)

    def y_at(value: float) -> float:
        return HEIGHT - BOTTOM - value / y_most * (HEIGHT - TOP - BOTTOM)

    parts = [
        _text(WIDTH / 2, 18, title, "middle"),
        _text(WIDTH / 2, HEIGHT - 6, x_name, "middle"),
        _text(4, TOP - 10, y_name),
    ]
    for number in range(MARKS + 1):
        y = y_at(number * step)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{number * step:g}", "end"))
    for x in sorted({x for points in lines.values() for x, _ in points}):
        parts.append(_text(x_at(x), HEIGHT - BOTTOM + 16, f"{x:,g}", "middle"))
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x_at(x), y_at(y)) for x, y in points]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(_text(LEFT + 12, TOP + 16 * (number + 1), name, colour=colour))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    path.write_text("\n".join((head, background, *parts, "</svg>", "")))


def _step(most: float) -> float:
    """Return a round step size such that `MARKS` steps reach at least `most`."""
    power = 10.0**-6
    while True:
        for digit in (1, 2, 5):
            if digit * power * MARKS >= most:
                return digit * power
        power *= 10


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "black") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
