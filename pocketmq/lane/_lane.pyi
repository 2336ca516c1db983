"""Types of the compiled module (`crate/src/python.rs`)."""

from collections.abc import Callable, Sequence
from typing import Any

INTERFACE: int

class Lane:
    """Serves ordinary sends, and keeps the units of their records until they are dispatched. Not thread-safe."""

    def __new__(
        cls,
        cells: dict[tuple[str, int], Any],
        store_host: bytes,
        properties: tuple[Sequence[bytes], Sequence[bytes]],
        added: bytes,
        sizes: tuple[int, int, int],
        json: Sequence[bytes],
        binary: tuple[bytes, bytes],
    ) -> Lane: ...
    def learn(self, topic: str, keys: Sequence[tuple[str, int]], read_count: int) -> None: ...
    def serve(
        self,
        data: bytes,
        start: int,
        born_host: bytes,
        offset: int,
        room: int,
        store_time_ms: int,
        records: list[bytes],
        answers: list[bytes | memoryview],
    ) -> tuple[int, int, str | None, int]: ...
    def copy(
        self,
        file: memoryview,
        positions: Sequence[int],
        delivery: tuple[int, int],
        offset: int,
        room: int,
        store_time_ms: int,
        records: list[bytes],
    ) -> tuple[int, int, str | None]: ...
    def append(
        self,
        queues: dict[tuple[str, int], Any],
        dirty: dict[Any, None],
        watched: tuple[Sequence[dict[Any, Any]], Sequence[dict[str, Any]]] | None,
        index: Any,
    ) -> tuple[bool, int, int, list[tuple[tuple[str, int], int, list[int], int]]]: ...
    def take_counts(self, most: int) -> list[tuple[tuple[str, int], int, int]]: ...
    @property
    def last(self) -> tuple[int, int, int] | None: ...
    @property
    def has_keys(self) -> bool: ...
    def physical_offsets(self) -> list[int]: ...
    def seal(self) -> None: ...
    def clear(self) -> None: ...

PullFields = tuple[str, str, int, int, int, int, int, int, int, str | None, str | None]
"""Fields of PullMessageRequestHeader up to expressionType."""

class Pulls:
    """Serves pulls."""

    def __new__(cls, template: Sequence[bytes], header_size_max: int) -> Pulls: ...
    def serve(
        self,
        data: bytes,
        start: int,
        most: int,
        permit: Callable[[PullFields], tuple[int, Any]],
        reader: Any,
        queues: dict[tuple[str, int], Any],
        log_files: Any,
        limits: tuple[int, int, int],
        answers: list[bytes | memoryview],
    ) -> tuple[int, list[tuple[str, str, int, int]], bool]: ...
    def take_progress(self) -> tuple[list[tuple[tuple[str, str, int], int, tuple[int, int, int, int]]], float]: ...

Found = tuple[int, bytes | int | None, int, int]
"""Token of a socket; what it has: bytes (b"": no more will come), None (large answers of the lane), or a number as `write`
returns it; bytes of the lane's answers to this read, and since the last time that the socket was found."""

class Sockets:
    """Sockets of clients, whose ordinary sends are served without Python. Only on Linux; not thread-safe."""

    def __new__(cls, large_size: int) -> Sockets: ...
    def fileno(self) -> int: ...
    def add(self, descriptor: int) -> int: ...
    def start(self, token: int, host: bytes) -> None: ...
    def remove(self, token: int) -> float | None: ...
    def set_direct(self, token: int, is_direct: bool) -> None: ...
    def read(self, token: int, is_reading: bool) -> None: ...
    def wait(self, now_s: float) -> None: ...
    @property
    def has_ready(self) -> bool: ...
    def next(self) -> Found | None: ...
    def serve(
        self,
        lane: Lane,
        offset: int,
        room: int,
        store_time_ms: int,
        write_beyond: int,
        late_s: float,
        records: list[bytes],
    ) -> tuple[int, Found | None]: ...
    def write(self, token: int, pieces: Sequence[bytes | memoryview]) -> int: ...
    def send(self) -> list[tuple[int, int]]: ...
    def unsent(self, token: int) -> int: ...
    def note_reads(self) -> list[tuple[int, float]]: ...
