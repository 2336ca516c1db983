"""The measurements of Spark over logs of growing size: reading of the JVM's log, damage of a log, the plot."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench import plot
from bench.made_store import make_store
from bench.spark_sizes import damaged, memory

SVG = "{http://www.w3.org/2000/svg}"


def test_live_heap_is_the_largest_heap_after_a_collection(tmp_path: Path) -> None:
    log = tmp_path / "gc.log"
    log.write_text(
        "[0.1s][info][gc] Using Parallel\n"
        "[1.2s][info][gc] GC(0) Pause Young (Allocation Failure) 256M->31M(981M) 9.1ms\n"
        "[2.2s][info][gc] GC(1) Pause Full (Metadata GC Threshold) 90M->22M(981M) 40.0ms\n"
    )
    assert memory.live_heap_mib(log) == 31
    log.write_text("")
    assert memory.live_heap_mib(log) == 0


def test_memory_of_an_ended_process_is_zero() -> None:
    assert memory.memory_mib(1 << 30) == (0.0, 0.0)


def test_damage_has_every_kind_and_reaches_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 20
    monkeypatch.setattr(damaged, "FILE_SIZE", size)
    monkeypatch.setattr(damaged, "RANGE_SIZE_MAX", 5000)
    make_store(tmp_path, 6 * size, 1024, size)
    before = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    done = damaged.damage(tmp_path, 60)
    after = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    assert done.total() == 62
    assert set(done) == {
        "header bits",
        "body bits",
        "zeroed ranges",
        "overwritten ranges",
        "a file cut off",
        "a missing file",
    }
    assert len(before) - len(after) == 1
    assert sorted({len(data) for data in after.values()}) == [size * 2 // 3, size]
    assert all(data != before[name] for name, data in after.items())


def test_plot_has_a_line_per_reader(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    plot.write_plot(path, "A < B", "GiB", "seconds", {"one": [(1, 2.0), (10, 20.0)], "two": [(1, 1.0), (10, 9.5)]})
    root = ET.parse(path).getroot()
    lines = [line.attrib["points"].split() for line in root.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [2, 2]
    (_, first_y), (_, second_y) = (map(float, points[1].split(",")) for points in lines)
    assert plot.TOP <= first_y < second_y < plot.HEIGHT - plot.BOTTOM
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"A < B", "GiB", "seconds", "one", "two", "1", "10"} <= set(texts)


def test_logarithmic_plot_has_points_of_equal_ratios_at_equal_distances(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    points = [(1, 5.0), (100, 6.0), (10_000, 10.0)]
    plot.write_plot(path, "cost", "topics", "us", {"lane": points}, is_logarithmic=True)
    (line,) = ET.parse(path).getroot().iter(f"{SVG}polyline")
    first, second, third = (float(point.split(",")[0]) for point in line.attrib["points"].split())
    assert first == plot.LEFT and abs((third - second) - (second - first)) < 0.2
