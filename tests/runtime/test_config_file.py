"""Config files are read strictly, and changed without touching anything else in them."""

import os
import stat

import pytest

from pocketmq.runtime import config_file

TEXT = "# a comment\nbrokerName = a\n\n! another\ndeleteWhen=04\ntraceOn: true\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"brokerName": "a"}', "line 1: not a properties file: expected key=value, found '{\"brokerName\"'"),
        (b"<configuration>\n<root/>", "line 1: not a properties file: expected key=value, found '<configuration>'"),
        (b"brokerName=a\n[broker]\nlistenPort=1", "line 2: not a properties file: expected key=value, found '[broker]'"),
        (b"brokerName=a\n- one\n", "line 2: not a properties file: expected key=value, found '-'"),
        (b"listenPort\n", "line 1: not a properties file: expected key=value, found 'listenPort'"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "line 1: not a properties file: it has the control character '\\x02'"),
        (b"a=1\nb=\x00\n", "line 2: not a properties file: it has the control character '\\x00'"),
        (b"#" * (config_file.FILE_SIZE_MAX + 1), "more than 1048576 bytes: not a properties file"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, problem):
    path = tmp_path / "broker.conf"
    path.write_bytes(content)
    with pytest.raises(ValueError) as refused:
        config_file.read(path)
    assert str(refused.value) == problem


def test_properties_as_java_writes_them_are_read(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes(b"\xef\xbb\xbf#Wed\r\nbrokerName\t a\\\r\n  b\r\nnamesrvAddr=h\\:9876\nrocketmqHome=\n")
    assert config_file.read(path) == {"brokerName": "ab", "namesrvAddr": "h:9876", "rocketmqHome": ""}


def test_a_change_keeps_comments_order_mode_and_links(tmp_path):
    target, link = tmp_path / "real.conf", tmp_path / "broker.conf"
    target.write_text(TEXT)
    target.chmod(0o640)
    link.symlink_to(target)
    config_file.change(link, {"deleteWhen": "05", "brokerIP1": "h"})
    assert target.read_text() == TEXT.replace("deleteWhen=04", "deleteWhen=05") + "brokerIP1=h\n"
    assert link.is_symlink() and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert config_file.read(link)["deleteWhen"] == "05"


def test_a_missing_file_is_created_with_its_folder(tmp_path):
    path = tmp_path / "config" / "broker.properties"
    config_file.change(path, {"deleteWhen": "05"})
    assert path.read_text() == "deleteWhen=05\n"


def test_a_file_that_cannot_be_written_stays_as_it_is(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(TEXT)
    path.chmod(0o444)
    with pytest.raises(OSError, match="read-only"):
        config_file.change(path, {"deleteWhen": "05"})
    path.chmod(0o644)
    os.mkdir(tmp_path / "broker.conf.tmp")
    with pytest.raises(OSError):
        config_file.change(path, {"deleteWhen": "05"})
    assert path.read_text() == TEXT
