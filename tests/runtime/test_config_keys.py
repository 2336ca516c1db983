"""Options of mqbroker and mqnamesrv: unknown keys, keys of Apache without effect, files of another kind."""

from pathlib import Path

import pytest

from pocketmq.broker.config import IGNORED_KEYS, BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime.apache_keys import NAMESRV_KEYS
from pocketmq.runtime.command_line import server_arguments
from pocketmq.runtime.config import bind, items_of
from pocketmq.store.config import MessageStoreConfig

APACHE = Path(__file__).parents[1] / "golden" / "config_keys.txt"
BROKER = [BrokerConfig, MessageStoreConfig, TlsConfig]


def apache_keys(server: str) -> list[str]:
    text = APACHE.read_text().partition(f"[{server}]")[2].partition("[")[0]
    assert len(keys := text.split()) > 80
    return keys


def configured(arguments: list[str], kept: Path | None = None) -> list[object]:
    return server_arguments.configure(
        "mqbroker", server_arguments.parse("mqbroker", "", arguments), BROKER, IGNORED_KEYS, kept
    )


@pytest.mark.parametrize(
    ("server", "declared", "ignored"),
    [("broker", BROKER, IGNORED_KEYS), ("namesrv", [NamesrvConfig, TlsConfig], NAMESRV_KEYS)],
)
def test_every_key_of_apache_is_declared_or_ignored_with_a_reason(server, declared, ignored):
    declared_keys = [key for key in apache_keys(server) if key not in ignored]
    _, report = bind(declared, {key: "1" for key in apache_keys(server) if key in ignored}, ignored)
    assert not report.unknown and all(report.ignored.values())
    known = {key for cls in declared for key in items_of(cls)}
    assert [key for key in declared_keys if key not in known] == []


def test_unknown_key_gets_a_suggestion_and_is_refused_by_strict(tmp_path, capsys):
    path = tmp_path / "broker.conf"
    path.write_text("flushDiskTyp=SYNC_FLUSH\nsendMessageThreadPoolNums=4\nxyzzy=1\n")
    configured(["-c", str(path)])
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "mqbroker: warning: unknown key flushDiskTyp: ignored; did you mean flushDiskType?",
        "mqbroker: warning: unknown key xyzzy: ignored",
        "mqbroker: warning: key sendMessageThreadPoolNums: ignored: there is only one thread and no queue in front of it",
    ]
    with pytest.raises(SystemExit) as ended:
        configured(["-c", str(path), "--strict"])
    assert ended.value.code == 2
    assert "unknown key flushDiskTyp: refused by --strict; did you mean flushDiskType?" in capsys.readouterr().err
    path.write_text("sendMessageThreadPoolNums=4\n")
    configured(["-c", str(path), "--strict"])  # Apache's keys without effect are known


def test_a_file_that_is_no_properties_file_is_refused(tmp_path, capsys):
    path = tmp_path / "broker.yaml"
    path.write_text("- brokerName: a\n")
    for arguments in (["-c", str(path)], ["-c", str(tmp_path)], ["-c", str(tmp_path / "missing")]):
        with pytest.raises(SystemExit) as ended:
            configured(arguments)
        assert ended.value.code == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == f"mqbroker: error: -c {path}: line 1: not a properties file: expected key=value, found '-'"
    assert second.endswith("Is a directory") and third.endswith("No such file or directory")


def test_kept_settings_apply_only_without_a_config_file(tmp_path, capsys):
    kept, given = tmp_path / "broker.properties", tmp_path / "broker.conf"
    kept.write_text("deleteWhen=05\n")
    given.write_text("brokerName=a\n")
    _, store, _ = configured([], kept)
    assert store.delete_when == "05" and str(kept) in capsys.readouterr().err  # type: ignore[attr-defined]
    _, store, _ = configured(["-c", str(given)], kept)
    assert store.delete_when == "04" and "deleteWhen" not in capsys.readouterr().err  # type: ignore[attr-defined]
    _, store, _ = configured([], tmp_path / "missing")
    assert store.delete_when == "04"  # type: ignore[attr-defined]
