"""Texts of the charts."""

from typing import Final

TEXTS: Final = {
    "charts.title": ("Charts", "图表"),
    "charts.about": (
        "Figures of the last hour, one every {seconds} s since the console started.",
        "最近一小时的数据，自控制台启动起每 {seconds} 秒一个。",
    ),
    "charts.in_rate": ("Messages in per second", "每秒写入消息数"),
    "charts.out_rate": ("Messages out per second", "每秒读出消息数"),
    "charts.disk_ratio": ("Disk used", "磁盘使用率"),
    "charts.needs_script": (
        "Charts need JavaScript; the table has the same figures.",
        "图表需要 JavaScript；下表有相同的数据。",
    ),
    "charts.table": ("Figures as a table", "数据表"),
    "charts.newest": ("newest: {value}", "最新：{value}"),
}
