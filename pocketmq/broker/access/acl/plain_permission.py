"""The ACL files: read at start, read again when they change, written when a request changes them.

The files are Apache's: `conf/plain_acl.yml` under rocketmqHome, and every .yml and .yaml below `conf/acl` except tools.yml.
Only a complete and valid set of rules comes into force: if a file cannot be read, the previous rules stay, and a change by
request is validated before it is written. Comments in a file changed by a request are lost, as in Apache's broker.
"""

import copy
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from pocketmq.broker.access.acl.access_rules import (
    ACCOUNTS,
    GLOBAL_WHITE_ADDRESSES,
    AccessRules,
    AclError,
    access_rules,
    account_entries,
    check_keys,
    check_perms,
    global_white_addresses,
    text_of,
)
from pocketmq.remoting.bodies import DataVersion
from pocketmq.runtime import atomic_file
from pocketmq.runtime.clock import Clock

log = logging.getLogger("broker")

DATA_VERSION: Final = "dataVersion"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Creates plain values only; the C implementation is used where available, because it is much faster."""
_Stamp = tuple[tuple[str, int, int, int], ...]
"""(path, inode, size, modification time in ns) of each file, to detect changes."""


class PlainPermissionManager:
    """The rules in force, and their files under `home`."""

    rules: AccessRules

    def __init__(self, home: Path, clock: Clock) -> None:
        self.default_path = home.absolute() / "conf" / "plain_acl.yml"
        self._folder = self.default_path.with_name("acl")
        self._clock = clock
        self._documents: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, DataVersion] = {}
        self._seen: _Stamp = ()

    def load(self) -> None:
        """Read all files. Raises AclError naming file and fault; the previous rules, if any, stay in force."""
        self._seen = self._stamp()
        documents = {path: _read(path) for path, *_ in self._seen}
        for path, document in documents.items():
            if not document and self._documents.get(path):
                raise AclError(f"{path}: the file is empty")  # an editor may be writing it
        self._accept(documents, access_rules(documents))

    def reload(self) -> None:
        """Read all files again if one was changed, added or deleted."""
        if self._stamp() == self._seen:
            return
        try:
            self.load()
        except AclError as error:
            log.error("access rules cannot be reloaded, the previous ones stay in force: %s", error)
        else:
            log.info("access rules reloaded: %d accounts", len(self.rules.accounts))

    # --- queries ----------------------------------------------------------------------------------------------------

    def version(self) -> DataVersion:
        """Return the version of the default file."""
        return self._versions.get(str(self.default_path)) or DataVersion()

    def versions(self) -> Mapping[str, DataVersion]:
        """Return the versions of all files by path."""
        return self._versions

    def accounts(self) -> list[dict[str, Any]]:
        """Return all account entries of the files, each access key once."""
        found: dict[str | None, dict[str, Any]] = {}
        for document in self._documents.values():
            for entry in account_entries(document):
                found.setdefault(text_of(entry.get("accessKey")), entry)
        return list(found.values())

    def global_white_addresses(self) -> list[str]:
        """Return the global white addresses of all files."""
        return [address for document in self._documents.values() for address in global_white_addresses(document)]

    # --- changes ----------------------------------------------------------------------------------------------------

    def update_account(self, config: Mapping[str, Any]) -> None:
        """Create or change the account `config["accessKey"]`; keys not in `config` stay. Raises AclError, OSError."""
        access_key = config["accessKey"]
        check_keys(access_key, config.get("secretKey"))
        check_perms([*config.get("topicPerms", ()), *config.get("groupPerms", ())])
        path = self._path_of(access_key) or str(self.default_path)
        document = self._draft(path)
        entries = account_entries(document)
        for entry in entries:
            if text_of(entry.get("accessKey")) == access_key:
                entry |= config
                break
        else:
            entries.append(dict(config))
        self._write(path, document | {ACCOUNTS: entries})

    def delete_account(self, access_key: str) -> None:
        """Delete an account. Raises AclError when it does not exist, and OSError."""
        path = self._path_of(access_key)
        if path is None:
            raise AclError(f"there is no account with accessKey={access_key}")
        document = self._draft(path)
        document[ACCOUNTS] = [e for e in account_entries(document) if text_of(e.get("accessKey")) != access_key]
        self._write(path, document)

    def update_global_white_addresses(self, addresses: Iterable[str], path: str | None) -> None:
        """Replace the global white list of one file (None or empty: the default file). Raises AclError, OSError."""
        chosen = os.path.abspath(path) if path else str(self.default_path)
        if chosen not in {str(self.default_path), *self._documents}:
            raise AclError(f"aclFileFullPath={path}: this is not one of the ACL files")
        self._write(chosen, self._draft(chosen) | {GLOBAL_WHITE_ADDRESSES: list(addresses)})

    # --- files ------------------------------------------------------------------------------------------------------

    def _draft(self, path: str) -> dict[str, Any]:
        """Return a copy of a file's present content for a change; the files are read again, as one may have been edited."""
        self.load()
        return copy.deepcopy(self._documents.get(path, {}))

    def _write(self, path: str, document: dict[str, Any]) -> None:
        version = _version(document, self._clock.message_time_ms())
        versions = {"counter": version.counter + 1, "timestamp": self._clock.message_time_ms()}
        documents = self._documents | {path: document | {DATA_VERSION: [versions]}}
        rules = access_rules(documents)
        text = yaml.safe_dump(documents[path], sort_keys=False, default_flow_style=False, allow_unicode=True)
        atomic_file.replace(Path(path), text.encode())
        self._seen = self._stamp()
        self._accept(documents, rules)

    def _accept(self, documents: dict[str, dict[str, Any]], rules: AccessRules) -> None:
        now_ms = self._clock.message_time_ms()
        self._versions = {path: _version(document, now_ms) for path, document in documents.items() if document}
        self._documents, self.rules = documents, rules
        if rules.repeated:
            log.warning("duplicate access keys, only the first account of each is used: %s", ", ".join(rules.repeated))
        if not rules.accounts:
            log.warning("%s has no accounts: only clients at globalWhiteRemoteAddresses are served", self.default_path)

    def _path_of(self, access_key: str) -> str | None:
        for path, document in self._documents.items():
            if any(text_of(entry.get("accessKey")) == access_key for entry in account_entries(document)):
                return path
        return None

    def _stamp(self) -> _Stamp:
        paths = [
            os.path.join(folder, name)
            for folder, _, names in os.walk(self._folder)
            for name in names
            if name.endswith((".yml", ".yaml")) and name != "tools.yml"
        ]
        rows = []
        for path in [*sorted(paths), str(self.default_path)]:
            try:
                state = os.stat(path)
            except OSError:
                continue  # just deleted, or never created
            rows.append((path, state.st_ino, state.st_size, state.st_mtime_ns))
        return tuple(rows)


def _read(path: str) -> dict[str, Any]:
    try:
        document = yaml.load(Path(path).read_bytes(), _LOADER)
    except yaml.MarkedYAMLError as error:  # its own text may show the line, with a secret
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise AclError(f"{path}: line {line}: {error.problem}") from None
    except (OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # PyYAML passes on what Python raises for the value of a tag, such as IndexError for an empty `!!int`.
        raise AclError(f"{path}: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise AclError(f"{path}: expected {ACCOUNTS} and {GLOBAL_WHITE_ADDRESSES}")
    return document


def _version(document: Mapping[str, Any], now_ms: int) -> DataVersion:
    rows = document.get(DATA_VERSION)
    row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    counter, timestamp = row.get("counter", 0), row.get("timestamp", now_ms)
    return (
        DataVersion(int(counter), int(timestamp))
        if isinstance(counter, int) and isinstance(timestamp, int)
        else DataVersion()
    )
