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
from pocketmq.spark_analytics.commands.report import make_report
from pocketmq.spark_analytics.direct.engine import DirectEngine
from pocketmq.spark_analytics.pipelines.consistency import FINDINGS_MAX, counted
from pocketmq.store.format.delay_level import DelayLevels
from tests.spark_analytics.spark_logs import LogBuilder

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SERIES_0 = (0x2F, 0x6F, 0x9F)
PAPER = (0xFD, 0xFD, 0xFB)


def volume(hours: int) -> Any:
    rows = [
        {"topic": topic, "time": T0 + timedelta(hours=hour), "seconds": 3600, "messages": 100 + hour, "bytes": 3 << 20}
        | {"messages_per_s": (100 + hour) / 3600}
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
    assert shown.rows[0] == ["orders", "2026-01-03 11:00", "3,600", "159", "3 MiB", "0.0442"]
    assert (len(shown.rows), shown.left_out) == (50, 70)


@pytest.mark.parametrize(
    ("span_s", "step_s", "seconds"),
    [(0, 1, 1), (200, 1, 1), (300, 1, 5), (7200, 60, 30), (86_400, 60, 600), (30 * 86_400, 3600, 3 * 3600)]
    + [(3 * 365 * 86_400, 86_400, 5 * 86_400)],
)
def test_interval_length_depends_on_the_span_of_the_log(tmp_path: Path, span_s: int, step_s: int, seconds: int) -> None:
    log = LogBuilder(1 << 20)
    for at_s in range(0, span_s + 1, step_s):
        log.append(store_timestamp_ms=int(T0.timestamp() * 1000) + at_s * 1000)
    volume = make_report(DirectEngine(), str(log.write(tmp_path)), DelayLevels()).volume.to_pylist()
    assert {row["seconds"] for row in volume} == {seconds}
    assert sum(row["messages"] for row in volume) == len(log.physical_offsets)
    assert len(volume) <= 242 and all(row["time"].timestamp() % seconds == 0 for row in volume)


def test_lateness_is_drawn_over_time_with_its_target(tmp_path: Path) -> None:
    times = [
        {"time": T0 + timedelta(minutes=m), "delivered": 9, "late_p50_ms": 3.0, "late_p99_ms": 9.0 + m} for m in range(5)
    ]
    rows = [row | {"late_max_ms": 20} for row in times]
    some = pa.table({"late_max_ms": [20]})
    buckets = pa.table({"bucket": [1], "messages": [5]})
    tables = {"lateness": some, "late_buckets": buckets, "late_worst": some, "late_series": pa.Table.from_pylist(rows)}
    plain = page({"volume": volume(3), "hosts": some, **tables}, ["/store"], [], T0)
    with_target = page({"volume": volume(3), "hosts": some, **tables}, ["/store"], [], T0, late_target_ms=15)
    assert all(f">{text}</text>" in plain for text in ("p50", "p99", "ms late"))
    assert ">target 15</text>" in with_target and "target" not in plain.replace("draw_with_target", "")


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
def test_truncated_list_of_findings_is_marked(errors: int, notes: int, told: dict[str, str]) -> None:
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
        + [
            "--hide-scrollbars",
            f"--window-size={width},2000",
            f"--screenshot={folder}/shown.png",
            f"file://{folder}/report.html",
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    return imread(folder / "shown.png"), [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.parametrize("width", [1280, 390])
def test_browser_shows_the_page_without_errors(tmp_path: Path, width: int) -> None:
    pixels, console = opened(made_page(), tmp_path, width)
    assert console == []
    assert pixels.shape[:2] == (2000, width)
    colours = (pixels[..., :3] * 255).round().astype(int)
    # Plots are drawn, in the colours of the page's own style.
    assert (colours == SERIES_0).all(axis=-1).sum() > 2000
    # Nothing reaches beyond the margin on the right.
    assert (colours[:, -8:] == PAPER).all()


def test_page_forbids_fetching_resources(tmp_path: Path) -> None:
    planted = made_page().replace("<footer", '<img src="http://127.0.0.1:9/spy.png"><script>alert(1)</script><footer')
    _, console = opened(planted, tmp_path, 400)
    assert any("spy.png" in line and "Content Security Policy" in line for line in console), console
    assert any("script" in line for line in console)
