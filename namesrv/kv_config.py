"""KVConfigManager: small settings by namespace and key, kept in kvConfig.json in Apache's shape."""

from pathlib import Path
from typing import Final

import msgspec

from remoting import fastjson
from runtime import atomic_file

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the queues of strictly ordered topics: topic -> `broker-a:4;broker-b:4`."""

Table = dict[str, dict[str, str]]


class _KVConfigFile(msgspec.Struct, rename="camel"):
    config_table: Table = msgspec.field(default_factory=dict)


class KVConfigManager:
    """Namespace -> key -> value. A change is on disk before it holds; without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._table: Table = {}

    def load(self) -> None:
        """Read the file, if there is one. Raises ValueError, naming it, when it cannot be read."""
        if self._path is not None:
            self._table = atomic_file.load(self._path, _decode) or {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace; None when it was never written to."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises OSError when it cannot be persisted; then it is not set."""
        self._change(namespace, {**self._table.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Delete a key, if it is there. Raises OSError when that cannot be persisted."""
        values = self._table.get(namespace)
        if values is not None and key in values:
            self._change(namespace, {name: value for name, value in values.items() if name != key})

    def _change(self, namespace: str, values: dict[str, str]) -> None:
        changed = {**self._table, namespace: values}
        if self._path is not None:
            atomic_file.replace(self._path, fastjson.dumps({"configTable": changed}))
        self._table = changed


def _decode(data: bytes) -> Table:
    return msgspec.convert(fastjson.loads(data), _KVConfigFile).config_table
