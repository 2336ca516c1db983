"""JVM options of a session."""

import pytest

from pocketmq.spark_analytics.__main__ import SMALL
from pocketmq.spark_analytics.session import COLLECTOR, DEFAULT_JAVA_OPTIONS, EXTRA_JAVA_OPTIONS, with_collector

SERIAL = "-XX:+UseSerialGC"


@pytest.mark.parametrize(
    ("settings", "environment", "expected"),
    [
        ({EXTRA_JAVA_OPTIONS: "-Da=b"}, {}, COLLECTOR),
        ({DEFAULT_JAVA_OPTIONS: "-Da=b"}, {}, f"-Da=b {COLLECTOR}"),
        ({DEFAULT_JAVA_OPTIONS: SERIAL}, {}, SERIAL),
        ({DEFAULT_JAVA_OPTIONS: SMALL["spark_driver_defaultJavaOptions"]}, {}, SMALL["spark_driver_defaultJavaOptions"]),
        ({EXTRA_JAVA_OPTIONS: f"-Da=b {SERIAL}"}, {}, None),
        ({}, {"JDK_JAVA_OPTIONS": f"-Xmx1g {SERIAL}"}, None),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"}, None),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:+UseStringDeduplication"}, COLLECTOR),
    ],
)
def test_jvm_gets_exactly_one_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], environment: dict[str, str], expected: str | None
) -> None:
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert with_collector(settings).get(DEFAULT_JAVA_OPTIONS) == expected
