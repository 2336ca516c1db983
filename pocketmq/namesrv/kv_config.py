"""KVConfigManager: settings by namespace and key, stored in kvConfig.json in Apache's format."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting import fastjson
from pocketmq.runtime import atomic_file
from pocketmq.runtime.table_writer import TableWriter, Written

log = logging.getLogger("namesrv")

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the queues of strictly ordered topics: topic -> `broker-a:4;broker-b:4`."""

Table = dict[str, dict[str, str]]


class _KVConfigFile(msgspec.Struct, rename="camel"):
    config_table: Table = msgspec.field(default_factory=dict)


class KVLimitError(ValueError):
    """A value beyond a limit; the text has key and value of the limit."""


class KVConfigManager:
    """Table of namespace -> key -> value. Without kvConfigPath it is kept in memory only.

    A change takes effect at once. It is written by `writer`, and undone if the file cannot be written; `unwritten` returns
    a future of the write.
    """

    def __init__(self, config: NamesrvConfig, writer: TableWriter | None = None) -> None:
        """`config` has the limits for new values, in bytes of UTF-8; existing ones beyond a limit are kept."""
        self._path = Path(config.kv_config_path) if config.kv_config_path else None
        self._writer = writer
        self._config = config
        self._table: Table = {}
        self._entry_count = 0
        self._byte_count = 0
        # (namespace, key) -> previous value or None: changes since the last snapshot, and changes in that snapshot.
        self._before: dict[tuple[str, str], str | None] = {}
        self._before_taken: dict[tuple[str, str], str | None] = {}

    def load(self) -> None:
        """Read the file, if it exists. Raises ValueError with its name if it cannot be read."""
        if self._path is not None:
            self._table = atomic_file.load(self._path, _decode) or {}
        sizes = [_size(name, key, value) for name, values in self._table.items() for key, value in values.items()]
        self._entry_count, self._byte_count = len(sizes), sum(sizes)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all keys of a namespace; None if it was never written to."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises KVLimitError if it exceeds a limit; then it is not set."""
        before = self.get(namespace, key)
        config, size = self._config, len(value.encode())
        if size > config.max_kv_value_bytes:
            raise KVLimitError(f"maxKvValueBytes={config.max_kv_value_bytes}: the value has {size} bytes")
        if before is None and self._entry_count >= config.max_kv_entries:
            raise KVLimitError(f"maxKvEntries={config.max_kv_entries}: there are {self._entry_count} entries")
        if namespace not in self._table and len(self._table) >= config.max_kv_entries:
            # A namespace stays when all its keys are deleted, as in Apache.
            raise KVLimitError(f"maxKvEntries={config.max_kv_entries}: there are {len(self._table)} namespaces")
        total = self._byte_count + _size(namespace, key, value) - (0 if before is None else _size(namespace, key, before))
        if total > max(config.max_kv_total_bytes, self._byte_count):
            raise KVLimitError(f"maxKvTotalBytes={config.max_kv_total_bytes}: with this value there would be {total} bytes")
        self._change(namespace, key, value)

    def delete(self, namespace: str, key: str) -> None:
        """Delete a key, if it exists."""
        if self.get(namespace, key) is not None:
            self._change(namespace, key, None)

    def _change(self, namespace: str, key: str, value: str | None) -> None:
        before = self.get(namespace, key)
        self._set(namespace, key, value)
        if self._path is not None:
            self._before.setdefault((namespace, key), before)
            if self._writer is not None:
                self._writer.write(self)

    def _set(self, namespace: str, key: str, value: str | None) -> None:
        values = self._table.setdefault(namespace, {})
        before = values.pop(key, None) if value is None else values.get(key)
        if before is not None:
            self._entry_count -= 1
            self._byte_count -= _size(namespace, key, before)
        if value is not None:
            values[key] = value
            self._entry_count += 1
            self._byte_count += _size(namespace, key, value)

    # --- the file ---------------------------------------------------------------------------------------------------

    def unwritten(self, namespace: str, key: str) -> Written | None:
        """Return a future that is done once the value is on disk; None if it is already."""
        if self._writer is None:
            return None
        if (namespace, key) in self._before:
            return self._writer.next(self)
        return self._writer.running(self) if (namespace, key) in self._before_taken else None

    def snapshot(self) -> Callable[[], object]:
        path, table = self._path, {namespace: values.copy() for namespace, values in self._table.items()}
        assert path is not None
        self._before_taken, self._before = self._before, {}
        return lambda: atomic_file.replace(path, fastjson.dumps({"configTable": table}))

    def written(self, error: Exception | None) -> None:
        taken, self._before_taken = self._before_taken, {}
        if error is None:
            return
        log.error("%s cannot be written, its changes are undone: %s", self._path, error)
        for (namespace, key), before in taken.items():
            if (namespace, key) in self._before:
                self._before[namespace, key] = before
            else:
                self._set(namespace, key, before)


def _size(namespace: str, key: str, value: str) -> int:
    return len(namespace.encode()) + len(key.encode()) + len(value.encode())


def _decode(data: bytes) -> Table:
    return msgspec.convert(fastjson.loads(data), _KVConfigFile).config_table
