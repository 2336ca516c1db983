"""Log files with rotation, and records in JSON, as a server process writes them."""

import contextlib
import json
import logging

import pytest

from pocketmq.runtime import log
from pocketmq.runtime.command_line.server_arguments import parse
from pocketmq.runtime.log import LogConfig, LogFormat


@pytest.fixture(autouse=True)
def root_log():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield root
    for handler in root.handlers:
        if handler not in before:
            with contextlib.suppress(OSError, ValueError):
                handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def lines(path):
    return path.read_text().splitlines()


def test_a_log_file_has_everything_and_standard_error_the_warnings(tmp_path, capsys):
    log.setup_as(LogConfig(log_directory=str(tmp_path / "new" / "logs")), "broker.log")
    logging.getLogger("broker").info("store opened")
    logging.getLogger("broker").warning("disk is nearly full")
    found = lines(tmp_path / "new" / "logs" / "broker.log")
    assert [line.partition(" INFO ")[2] or line.partition(" WARNING ")[2] for line in found] == [
        "broker - store opened",
        "broker - disk is nearly full",
    ]
    said = capsys.readouterr().err
    assert "disk is nearly full" in said and "store opened" not in said


def test_old_files_are_numbered_and_limited(tmp_path):
    config = LogConfig(log_directory=str(tmp_path), log_file_size=64 << 10, log_file_count=2)
    log.setup_as(config, "namesrv.log")
    for number in range(900):
        logging.getLogger(f"namesrv.{number}").info("%05d %s", number, "x" * 400)
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["namesrv.log", "namesrv.log.1", "namesrv.log.2"]
    assert all(path.stat().st_size <= 64 << 10 for path in files)
    kept = [int(line.partition(" - ")[2][:5]) for path in reversed(files) for line in lines(path)]
    assert kept == list(range(kept[0], 900))


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    log.setup_as(LogConfig(log_directory="~/logs/rocketmqlogs"), "broker.log")
    assert (tmp_path / "logs" / "rocketmqlogs" / "broker.log").exists()


def test_json_has_one_object_per_line_whatever_a_peer_sends(tmp_path):
    log.setup_as(LogConfig(log_directory=str(tmp_path), log_format=LogFormat.JSON), "broker.log")
    hostile = 'a"}\n{"level":"x"\u2028\u0085\x1b[2J 消息'
    try:
        raise ValueError(hostile)
    except ValueError:
        logging.getLogger("remoting").exception("request of %s failed", hostile)
    logging.getLogger("broker").warning("%s", "y" * 100_000)
    found = lines(tmp_path / "broker.log")
    assert len(found) == 2 and len(found[1]) < 10_000
    first = json.loads(found[0])
    assert (first["level"], first["logger"]) == ("ERROR", "remoting")
    assert first["message"].startswith("request of a") and "消息" in first["message"]
    assert "ValueError" in first["exception"]
    assert first["time"].endswith("+00:00")


def test_json_goes_to_standard_error_without_a_file(capsys):
    log.setup_as(LogConfig(log_format=LogFormat.JSON), "broker.log")
    logging.getLogger("broker").info("started")
    assert json.loads(capsys.readouterr().err)["message"] == "started"


def test_failed_write_of_the_log_file_is_reported_once(tmp_path, capsys):
    log.setup_as(LogConfig(log_directory=str(tmp_path)), "broker.log")
    next(one for one in logging.getLogger().handlers if hasattr(one, "baseFilename")).stream.close()
    for _ in range(5):
        logging.getLogger("broker").info("x")
    assert capsys.readouterr().err.count("cannot be written: I/O operation on closed file") == 1


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        log.setup_as(LogConfig(log_directory=str(tmp_path / "file" / "logs")), "broker.log")


def test_log_options_of_servers_are_parsed():
    arguments = parse("mqbroker", "", ["--log-dir", "/logs", "--json-logs"])
    assert (arguments.log_directory, arguments.json_logs) == ("/logs", True)
