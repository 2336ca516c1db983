"""Changes of a server's config by requests: checked, written to its config file, and only then applied.

Changes are made one after the other, each all or none. The file is written in the writer's thread; the answer to a request
is sent once its change is synced and applied, so that a confirmed change still applies after a restart.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pocketmq.runtime import config_file, properties_file
from pocketmq.runtime.config import VALUE_SIZE_MAX, ConfigError, Update, plan_update
from pocketmq.runtime.peer_text import clipped
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.table_writer import TableWriter

log = logging.getLogger("runtime")

BODY_SIZE_MAX: Final = 64 * 1024
"""Maximum size in bytes of a request that changes the config."""
WAITING_MAX: Final = 64
"""Maximum number of changes that wait for the one before them."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

Done = Callable[[Exception | None], None]
"""Called once the change is durable and applied, or with the error because of which nothing was changed."""


@dataclass(frozen=True)
class Rules:
    """Rules for changes while a server runs."""

    allowed: frozenset[str]
    ignored: Mapping[str, str]
    """Keys without effect -> reason."""
    check: Callable[..., None]
    """The check made at start; raises an exception that refuses the given configs."""
    prepare: Callable[..., Any] | None = None
    """Called in the writer's thread with the changed configs, for slow preparations; its result is passed to `applied`."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Keys that stand for another one while the server runs."""


def parse_changes(body: bytes) -> dict[str, str]:
    """Return the changes of a request's body. Raises ConfigError."""
    if len(body) > BODY_SIZE_MAX:
        raise ConfigError([f"the change has {len(body)} bytes, the limit is {BODY_SIZE_MAX}"])
    try:
        changes = properties_file.loads(body.decode())
    except UnicodeDecodeError as error:
        raise ConfigError([f"the change is not UTF-8: {error.reason} at byte {error.start}"]) from None
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    if not changes:
        raise ConfigError(["there is no key=value in the body"])
    problems = [
        f"{key[:VALUE_SIZE_MAX]!r}={value[:VALUE_SIZE_MAX]!r}: a value is one line without control characters"
        for key, value in changes.items()
        if _CONTROL.search(key) or _CONTROL.search(value)
    ]
    if problems:
        raise ConfigError(problems[:1])
    return changes


class ConfigUpdates:
    """The changes of one server's configs."""

    def __init__(self, configs: Sequence[Any], rules: Rules, file: Path | None, writer: TableWriter | None) -> None:
        """`file` None: changes last until the server stops. `writer` is needed for a file or `prepare` only."""
        self.file = file
        self.applied: Callable[[dict[str, Any], Any], None] = lambda values, prepared: None
        """Called after each change with key -> new value, and what `prepare` returned."""
        self.configs = configs
        """The configs of the server, also those whose keys `rules` do not allow to change."""
        self._rules = rules
        self._writer = writer
        self._waiting: deque[tuple[dict[str, str], Done, str]] = deque()
        self._refusals = RefusalLog(log)
        self._is_writing = False

    def submit(self, changes: Mapping[str, str], done: Done, asker: str = "") -> None:
        """Make the changes after those that were submitted before; `asker` is the address that the log names."""
        if len(self._waiting) >= WAITING_MAX:
            done(ConfigError([f"{WAITING_MAX} other changes are waiting to be written; try again"]))
            return
        self._waiting.append((dict(changes), done, asker))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_writing:
            changes, done, asker = self._waiting.popleft()
            try:
                planned = self._plan(changes)
            except Exception as error:
                self._refused(asker, error)
                done(error)
                continue
            if self.file is None and self._rules.prepare is None:
                self._apply(planned, None, asker)
                done(None)
            else:
                self._write(planned, done, asker)

    def _plan(self, changes: Mapping[str, str]) -> Update:
        rules = self._rules
        renamed = {rules.renamed.get(key, key): value for key, value in changes.items()}
        try:
            return plan_update(self.configs, renamed, rules.allowed, rules.check, rules.ignored)
        except ConfigError as error:
            stand_ins = [f"{key} is an alias of {rules.renamed[key]} here" for key in changes if key in rules.renamed]
            raise type(error)([*error.problems, *stand_ins]) from None

    def _write(self, planned: Update, done: Done, asker: str) -> None:
        assert self._writer is not None, "a file is written in the writer's thread"
        prepared: list[Any] = []

        def work() -> None:
            prepared.append(None if self._rules.prepare is None else self._rules.prepare(*planned.changed))
            if self.file is not None:
                config_file.change(self.file, planned.texts)

        def written(error: Exception | None) -> None:
            self._is_writing = False
            if error is None:
                self._apply(planned, prepared[0], asker)
            else:
                self._refused(asker, error)
            done(error)
            self._go_on()

        self._is_writing = True
        self._writer.run(work).add_done_callback(lambda over: written(over.result()))

    def _refused(self, asker: str, error: Exception) -> None:
        problem = clipped(str(error).replace("\n", "; "))
        self._refusals.refused(None, f"a change of the config by {asker} is refused: {problem}")

    def _apply(self, planned: Update, prepared: Any, asker: str) -> None:
        values = planned.apply()
        where = "not kept over a restart" if self.file is None else f"written to {self.file}"
        log.info("config changed by %s: %s (%s)", asker, ", ".join(f"{key}={value}" for key, value in values.items()), where)
        self.applied(values, prepared)
