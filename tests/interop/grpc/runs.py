"""One run of a driver: a client in a process of its own, and what it prints."""

import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketmq.cli import child_process
from tests.patience import PATIENCE_S

Row = list[Any]


class Run:
    """A running driver; its lines are read as they come."""

    def __init__(self, command: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = []
        self.notes: dict[str, Any] = {}
        self._errors = folder / "errors.txt"
        self._ready = threading.Event()
        with self._errors.open("wb") as errors:
            self._process = child_process.start_program(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                cwd=folder, env=environment,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                item = json.loads(line)
                if "row" in item:
                    self.rows.append(item["row"])
                elif "note" in item:
                    self.notes[item["note"]] = item["value"]
                else:
                    self._ready.set()

    def wait_ready(self) -> None:
        if not self._ready.wait(PATIENCE_S):
            self.kill()
            raise TimeoutError(f"the driver is not ready; {self._state()}")

    def finish(self) -> None:
        """Wait until the driver ends; it must end with status 0."""
        try:
            status = self._process.wait(2 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"the driver does not end; {self._state()}") from None
        self._reader.join()
        assert status == 0, f"status {status}; {self._state()}"

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """End the driver at once, as a crash does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _state(self) -> str:
        return f"rows {self.rows}, notes {self.notes}, errors:\n{self._errors.read_text(errors='replace')[-4000:]}"
