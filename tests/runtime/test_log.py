"""Log lines that quote peers: one clipped line per record; repetitions are counted instead of written."""

import io
import logging

import pytest

from pocketmq.runtime.log import FORMAT, LINES_MAX, TRACEBACK_LINES_MAX, LineFormatter, RepeatFilter


class Log:
    """A logger with the format and filter of a server process, and its own clock."""

    def __init__(self):
        self.now_s, self._stream = 0.0, io.StringIO()
        handler = logging.StreamHandler(self._stream)
        handler.setFormatter(LineFormatter(FORMAT))
        handler.addFilter(RepeatFilter(lambda: self.now_s))
        self.logger = logging.Logger("test")
        self.logger.addHandler(handler)

    @property
    def text(self):
        return self._stream.getvalue()

    @property
    def lines(self):
        return self.text.splitlines()


@pytest.fixture
def log():
    return Log()


def fails(log, text="no"):
    try:
        raise RuntimeError(text)
    except RuntimeError:
        log.logger.exception("request failed")


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x1b[2J", "\x85", "\u2028", "\0"])
def test_line_break_in_a_name_does_not_start_a_log_line(log, end):
    forged = f"group{end}2026-01-01 00:00:00.000 ERROR broker - all is lost"
    log.logger.info("group %s left", forged)
    log.logger.info("closing: %s", ValueError(forged))
    log.logger.info("it is %r", forged)
    fails(log, forged)
    begun = [line for line in log.lines if not line.startswith("    ")]
    assert len(begun) == 4
    assert all(" - " in line and not line.startswith("2026-01-01") for line in begun)
    assert "\x1b" not in log.text and "\0" not in log.text


def test_long_arguments_are_clipped(log):
    log.logger.info("group %s left %r: %s", "g" * 10**6, "t" * 10**6, ValueError("x" * 10**6))
    assert len(log.text) < 2000
    assert "(1000000 characters)" in log.text


def test_numbers_names_and_percent_signs_are_unchanged(log):
    log.logger.info("%d of %.1f, %s, %5s, %r, 100%%", 1, 2.25, None, "ab", ["a"])
    log.logger.info("100 % of all")
    log.logger.info("%(a)s is %(b)d", {"a": "x", "b": 2})
    said = [line.split(" - ")[1] for line in log.lines]
    assert said == ["1 of 2.2, None,    ab, ['a'], 100%", "100 % of all", "x is 2"]


def test_the_traceback_of_a_failure_is_written_once_a_minute_with_a_count(log):
    for _ in range(1000):
        fails(log, "x" * 10_000)
    assert log.text.count("Traceback") == 1
    assert len(log.text) < 5000
    log.now_s = 61
    fails(log)
    assert log.text.count("Traceback") == 2
    assert "request failed (999 more like this were left out)" in log.text


def test_traceback_of_a_different_failure_is_written(log):
    fails(log)
    try:
        {}["key"]
    except KeyError:
        log.logger.exception("request failed")
    assert log.text.count("Traceback") == 2


def test_long_traceback_keeps_its_first_and_last_lines(log):
    source = "\n".join(f"def f{n}():\n f{n + 1}()" for n in range(100)) + "\ndef f100():\n {}['gone']"
    scope = {}
    exec(source, scope)
    try:
        scope["f0"]()
    except KeyError:
        log.logger.exception("request failed")
    assert len(log.lines) <= TRACEBACK_LINES_MAX + 3
    assert "KeyError: 'gone'" in log.text and "Traceback" in log.text and "lines left out" in log.text


def test_lines_per_minute_of_one_place_are_limited(log):
    def say(number):
        log.logger.warning("closing %d", number)

    for number in range(3 * LINES_MAX):
        say(number)
    assert len(log.lines) == LINES_MAX
    log.logger.warning("something else")
    assert len(log.lines) == LINES_MAX + 1
    log.now_s = 61
    say(7)
    assert log.lines[-1].endswith(f"closing 7 ({2 * LINES_MAX} more like this were left out)")
