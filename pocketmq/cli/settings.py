"""Settings of `pocketmq up`: the file of `-c` and the options `--set key=value`, checked before anything starts."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pocketmq.broker.config import IGNORED_KEYS as BROKER_IGNORED_KEYS
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.proxy.config import GrpcConfig
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime import config_file
from pocketmq.runtime.apache_keys import NAMESRV_KEYS
from pocketmq.runtime.command_line.commands import warn
from pocketmq.runtime.config import bind, items_of, nearest, unknown_key
from pocketmq.runtime.error_text import system_reason
from pocketmq.runtime.log import LogConfig
from pocketmq.store.config import MessageStoreConfig

NAMESRV_PORT: Final = 9876
COMMIT_LOG_FILE_SIZE: Final = 64 << 20
"""Size of log files, suitable for a development machine; Apache's default is 1 GiB."""
BROKER_CLASSES: Final = (BrokerConfig, MessageStoreConfig, TlsConfig, GrpcConfig)
NAMESRV_CLASSES: Final = (NamesrvConfig, TlsConfig)
_ALL_CLASSES: Final = (*BROKER_CLASSES, NamesrvConfig, LogConfig)
_IGNORED_KEYS: Final = {**NAMESRV_KEYS, **BROKER_IGNORED_KEYS}
_DECLARED: Final = {key for cls in _ALL_CLASSES for key in items_of(cls)}
_KNOWN: Final = _DECLARED | _IGNORED_KEYS.keys()
_BY_OPTION: Final = {
    "listenPort": "use --port",
    "namesrvAddr": "`pocketmq up` starts a name server of its own",
    "storePathRootDir": "use --store",
    "storePathCommitLog": "it is under the folder of --store",
    "kvConfigPath": "it is under the folder of --store",
}


class SettingError(ValueError):
    """A file or setting that cannot be used; the text has one line per problem."""


def read(file: Path | None, assignments: Sequence[str], given_otherwise: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of `file`, replaced by those of `assignments` (`key=value`).

    `given_otherwise`: keys that may not be set, with what to use instead. Raises SettingError for a file that cannot be
    read and for each unknown key or invalid value.
    """
    settings = {} if file is None else _read(file, f"-c {file}")
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"--set {assignment}: expected key=value")
        settings[key.strip()] = value
    refused = {**_BY_OPTION, **(given_otherwise or {})}
    problems = [f"{key}: cannot be set here: {refused[key]}" for key in settings if key in refused]
    problems += [unknown_key(key, nearest(key, _KNOWN)) for key in settings if key not in _KNOWN]
    if problems:
        raise SettingError("\n".join(problems))
    bind(_ALL_CLASSES, settings, _IGNORED_KEYS)  # raises ConfigError, a ValueError
    return settings


def kept(path: Path) -> dict[str, str]:
    """Return the settings in `path`, which were changed while a server ran, and warn that they apply; none without a file.

    Raises SettingError for a file that cannot be read.
    """
    if not path.exists():
        return {}
    warn(f"settings changed at runtime (in {path}) apply")
    return _read(path, str(path))


def _read(path: Path, name: str) -> dict[str, str]:
    try:
        return config_file.read(path)
    except (OSError, ValueError) as error:
        raise SettingError(f"{name}: {system_reason(error) if isinstance(error, OSError) else error}") from None


def part_of(settings: Mapping[str, str], declared: Iterable[type[Any]]) -> dict[str, str]:
    """Return the settings that a class of `declared` has; a key of both servers applies to both."""
    keys = {key for cls in declared for key in items_of(cls)}
    return {key: value for key, value in settings.items() if key in keys}


def client_tls(settings: Mapping[str, str]) -> TlsConfig | None:
    """Return the TLS of connections to the servers that have these settings; None: they are plain. Raises StartError."""
    declared = BrokerConfig, TlsConfig
    (broker_config, tls), _ = bind(declared, part_of(settings, declared))
    tls.read_config_file()
    broker_config.settle_tls(tls.mode)
    return tls if broker_config.use_tls else None


def warnings(settings: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key of Apache's that has no effect."""
    return [f"key {key}: ignored: {_IGNORED_KEYS[key]}" for key in settings if key in _IGNORED_KEYS and key not in _DECLARED]
