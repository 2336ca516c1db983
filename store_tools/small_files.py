"""The small files of a store: checkpoint, abort mark, the tables in config/."""

import os
from typing import Any, Final

from store import clean_stop
from store.config_document import decode_document
from store.file_disk import FileDisk
from store.layout import CHECKPOINT_FILE_SIZE, CHECKPOINT_SIZE, CHECKPOINT_STRUCT
from store_tools.finding import Finding, Findings, Severity
from store_tools.store_files import StoreFiles

_FROM_LOG: Final = "the next start of a broker goes by the log; `pocketmq store repair` sets it anew"
_CHECKPOINT_NAMES: Final = ("physic_msg_timestamp_ms", "logics_msg_timestamp_ms", "index_msg_timestamp_ms")


def known_topics(files: StoreFiles) -> frozenset[str] | None:
    """The topics of config/topics.json, or of its `.bak`; None when neither can be read."""
    for name in ("config/topics.json", "config/topics.json.bak"):
        try:
            with open(files.path(name), "rb") as file:
                document: dict[str, Any] = decode_document(file.read())
            return frozenset(document.get("topicConfigTable", {}))
        except (OSError, ValueError, RecursionError):
            continue
    return None


def dropped_topics(files: StoreFiles) -> dict[str, int]:
    """Topic -> physical offset behind the records of its former life, as far as our broker noted it (cleanStop.json)."""
    known, _ = clean_stop.load(FileDisk(), files.root)
    return known.dropped if known is not None else {}


def check_small_files(files: StoreFiles, findings: Findings) -> None:
    """Config tables that cannot be read, and a checkpoint of a wrong size."""
    folder = files.path("config")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if not name.endswith(".json"):
            continue
        path = f"{folder}/{name}"
        why = _why_unreadable(path)
        if why:
            is_backed = os.path.exists(f"{path}.bak") and not _why_unreadable(f"{path}.bak")
            advice = "a broker reads the .bak beside it instead" if is_backed else "bring it back from a copy, or delete it"
            findings.add(Finding(Severity.DERIVED, "config", path, -1, f"no readable JSON: {why}", advice))
    path = files.path("checkpoint")
    if files.log.files and not os.path.exists(path):
        findings.add(Finding(Severity.DERIVED, "checkpoint", path, -1, "there is no checkpoint", _FROM_LOG))
    elif os.path.exists(path) and (size := os.path.getsize(path)) != CHECKPOINT_FILE_SIZE:
        what = f"the checkpoint has {size} bytes, {CHECKPOINT_FILE_SIZE} are right"
        findings.add(Finding(Severity.DERIVED, "checkpoint", path, -1, what, _FROM_LOG))


def _why_unreadable(path: str) -> str:
    try:
        with open(path, "rb") as file:
            decode_document(file.read())
    except FileNotFoundError:
        return ""  # replaced just now
    except (OSError, ValueError, RecursionError) as error:
        return str(error)
    return ""


def checkpoint_times(files: StoreFiles) -> tuple[int, ...]:
    """(log, queues, index): up to which store time each is on disk by the checkpoint, in ms; empty without a whole one."""
    try:
        data = files.read(files.path("checkpoint"), 0, CHECKPOINT_SIZE).tobytes()
    except FileNotFoundError:
        return ()
    return CHECKPOINT_STRUCT.unpack(data)[:3] if len(data) == CHECKPOINT_SIZE else ()


def check_checkpoint_times(
    files: StoreFiles, times: tuple[int, ...], last_store_timestamp_ms: int, findings: Findings
) -> None:
    """A checkpoint must not vouch for records that are younger than the log's last: recovery would begin too late."""
    for number, (name, time_ms) in enumerate(zip(_CHECKPOINT_NAMES, times, strict=False)):
        if time_ms < 0 or time_ms > last_store_timestamp_ms:
            what = f"{name} is {time_ms}, the log's last record was stored at {last_store_timestamp_ms}"
            findings.add(Finding(Severity.DERIVED, "checkpoint", files.path("checkpoint"), number * 8, what, _FROM_LOG))
