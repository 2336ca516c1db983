"""The report's HTML page: number formats, and rendering in a browser."""

import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from matplotlib.image import imread

from pocketmq.spark_analytics.commands.page import page, shown_table
from pocketmq.spark_analytics.pipelines.consistency import FINDINGS_MAX, counted

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SERIES_0 = (0x2F, 0x6F, 0x9F)


def volume(hours: int) -> Any:
    rows = [
        {"topic": topic, "hour": T0 + timedelta(hours=hour), "messages": 100 + hour, "bytes": 3 << 20}
        for topic in ("orders", "payments")
        for hour in range(hours)
    ]
    return pa.Table.from_pylist(rows)


def made_page(hours: int = 3) -> str:
    senders = {"sender": "10.0.0.7", "broker": "10.0.0.1:10911", "messages": 7, "bytes": 900, "topics": 2}
    tables = {"volume": volume(hours), "hosts": pa.Table.from_pylist([senders])}
    return page(tables, ["/the/store"], [("messages", "7", False)], T0)


def test_hours_with_most_messages_are_shown_first() -> None:
    shown = shown_table("volume", "By topic and hour", volume(60))
    assert shown.rows[0] == ["orders", "2026-01-03 11:00", "159", "3 MiB"]
    assert (len(shown.rows), shown.left_out) == (50, 70)


def test_long_period_is_plotted_by_day() -> None:
    by_hours, by_days = made_page(24), made_page(60 * 24)
    assert "messages an hour" in by_hours
    assert "messages a day" in by_days and "messages an hour" not in by_days
    assert len(by_days) < 3 * len(by_hours)


def test_sizes_have_one_format() -> None:
    assert all(f">{text}</text>" in made_page() for text in ("2 MiB", "4 MiB", "6 MiB", "8 MiB"))


@pytest.mark.parametrize(
    "errors, notes, told",
    [
        (0, 0, {}),
        (2, 1, {"error": "2", "note": "1"}),
        (FINDINGS_MAX, 0, {"error": "1,000 or more"}),
        (1, FINDINGS_MAX - 1, {"error": "1", "note": "999 or more"}),
    ],
)
def test_cut_list_of_findings_is_marked(errors: int, notes: int, told: dict[str, str]) -> None:
    assert counted([{"severity": "error"}] * errors + [{"severity": "note"}] * notes) == told


# --- in a browser ---------------------------------------------------------------------------------------------------


def opened(html: str, folder: Path, width: int) -> tuple[Any, list[str]]:
    """Return (pixels of the page in headless Chromium, lines of its console)."""
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium")
        pytest.skip("no Chromium")
    (folder / "report.html").write_text(html, encoding="utf-8")
    # --no-sandbox is needed to run as root; the page is trusted.
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={folder}/own"]
        + [f"--window-size={width},2000", f"--screenshot={folder}/shown.png", f"file://{folder}/report.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return imread(folder / "shown.png"), [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.parametrize("width", [1400, 400])
def test_browser_shows_the_page_without_errors(tmp_path: Path, width: int) -> None:
    pixels, console = opened(made_page(), tmp_path, width)
    assert console == []
    assert pixels.shape[:2] == (2000, width)
    colours = (pixels[..., :3] * 255).round().astype(int)
    # Plots are drawn, in the colours of the page's own style.
    assert (colours == SERIES_0).all(axis=-1).sum() > 2000


def test_page_forbids_fetching_resources(tmp_path: Path) -> None:
    planted = made_page().replace("<footer", '<img src="http://127.0.0.1:9/spy.png"><script>alert(1)</script><footer')
    _, console = opened(planted, tmp_path, 400)
    assert any("spy.png" in line and "Content Security Policy" in line for line in console), console
    assert any("script" in line for line in console)
