"""Values as pages show them, and times as forms send them."""

import time

import pytest
from markupsafe import Markup

from pocketmq.console import texts
from pocketmq.console.values import from_input, moment, number, percent, size


@pytest.fixture(params=["UTC", "Asia/Shanghai"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (number(None), "–"), (number(0), "0"), (number(1234567), "1,234,567"), (number(0.0), "0"), (number(2.5), "2.5"),
        (number(1234.567), "1,234.57"), (size(0), "0 B"), (size(1536), "1.5 KiB"), (size(3 << 40), "3.0 TiB"),
        (size(None), "–"), (percent(0.256), "25.6%"), (percent(-1.0), "–"), (moment(0), "–"),
        (moment(1 << 62), str(1 << 62)),
    ],
)  # fmt: skip
def test_a_value_is_shown(shown, text):
    assert shown == text


def test_a_time_is_that_of_the_machine_and_is_read_as_such(zone):
    text = {"UTC": "2026-11-21 12:30:05", "Asia/Shanghai": "2026-11-21 20:30:05"}[zone]
    assert f">{text}</time>" in moment(1_795_264_205_000)
    assert from_input(text.replace(" ", "T")) == 1_795_264_205_000
    assert from_input("2026-11-21T12:30:05+00:00") == 1_795_264_205_000


def test_markup_in_a_text_stays_and_other_values_are_escaped():
    shown = texts.text("en", "topics.about", kind="<b>", messages=Markup("<i>1</i>"), brokers=1)
    assert shown == "&lt;b&gt; · messages: <i>1</i> · brokers: 1"


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "", "en"), (None, "zh", "zh"), (None, "zh-TW,zh;q=0.9,en;q=0.8", "zh"), (None, "en;q=0.1, zh;q=0.5", "zh"),
        ("zh", "en", "zh"), ("xx", "zh", "zh"), (None, "fr, de;q=x, ;q=, zh;q=nan", "zh"), (None, "," * 5000, "en"),
    ],
)  # fmt: skip
def test_the_language_of_a_browser(chosen, accepted, language):
    assert texts.language_of(chosen, accepted) == language
