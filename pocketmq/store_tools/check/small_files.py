"""Check of the small files of a store: checkpoint, marks, the tables in config/, quarantine."""

import json
import os
from typing import Final

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.store_checkpoint import believed
from pocketmq.store.format.config_document import check_seal, decode_document
from pocketmq.store.format.layout import CHECKPOINT_SEAL_POSITION, CHECKPOINT_SEAL_STRUCT, CHECKPOINT_SIZE, CHECKPOINT_STRUCT
from pocketmq.store.offline.store_folder import DamagedFileError
from pocketmq.store.recovery import abort_mark, clean_stop
from pocketmq.store_tools.check.finding import Findings
from pocketmq.store_tools.files.store_files import StoreFiles

# End of the checkpoint's bytes that Apache's brokers may use. 5.5.0 stores one number more than PocketMQ reads.
_KNOWN_TO_APACHE: Final = 64
_FROM_LOG: Final = "the next start of a broker uses the log instead; `pocketmq store repair` writes it again"
_CHECKPOINT_NAMES: Final = ("physic_msg_timestamp_ms", "logics_msg_timestamp_ms", "index_msg_timestamp_ms")


def known_topics(files: StoreFiles) -> frozenset[str] | None:
    """Return the topics of config/topics.json or its `.bak`; None if neither can be read."""
    try:
        table = files.document("topics.json").get("topicConfigTable")
    except (DamagedFileError, OSError):
        return None
    return frozenset(table) if isinstance(table, dict) else None


def dropped_topics(files: StoreFiles) -> dict[str, int]:
    """Return deleted topic -> end of its records before the deletion, as far as PocketMQ recorded it (cleanStop.json)."""
    known, _ = clean_stop.load(FileDisk(), files.root)
    return known.dropped if known is not None else {}


def check_small_files(files: StoreFiles, findings: Findings) -> None:
    """Find tables and marks that cannot be read or were changed after they were written."""
    for name in files.names("config"):
        if name.endswith((".json", ".json.bak")):
            _check_table(files, name, findings)
    _check_checkpoint(files, findings)
    _check_clean_stop(files, findings)
    path = files.path("abort")
    data = files.bytes_of("abort")
    if data is not None and (problem := abort_mark.problem_of(data)):
        advice = "the next start of a broker treats it as the mark of a crash"
        findings.differs("abort", path, -1, problem, advice)
    path = files.path("lock")
    data = files.bytes_of("lock")
    if data not in (None, b"", b"lock"):
        what = f"the file has {len(data or b'')} bytes, which no broker writes"
        findings.differs("lock", path, -1, what, "delete it when no broker is running")
    _check_quarantine(files, findings)


def _check_table(files: StoreFiles, name: str, findings: Findings) -> None:
    path, why = files.path("config", name), _why_invalid(files, name)
    if not why:
        return
    if path.endswith(".bak"):
        advice = "the next change of the table replaces it"
    elif os.path.exists(f"{path}.bak") and not _why_invalid(files, f"{name}.bak"):
        advice = "a broker that cannot correct it reads its .bak"
    else:
        advice = "restore it from a copy, or delete it"
    findings.differs("config", path, -1, why, advice)


def _why_invalid(files: StoreFiles, name: str) -> str:
    data = files.bytes_of("config", name)
    if data is None:
        return ""  # it is being replaced
    try:
        document = decode_document(data)
    except (ValueError, RecursionError) as error:
        return f"not valid JSON: {error}"
    return "the checksum is wrong: the table was damaged, or edited by hand" if check_seal(document) is False else ""


def _check_checkpoint(files: StoreFiles, findings: Findings) -> None:
    path = files.path("checkpoint")
    data = files.bytes_of("checkpoint")
    if data is None:
        if files.log.files:
            findings.differs("checkpoint", path, -1, "there is no checkpoint", _FROM_LOG)
        return
    problem = believed(data)[1]
    if problem and files.is_running():
        problem = believed(files.bytes_of("checkpoint") or data)[1]  # the first read may have overlapped a write
    if problem:
        findings.differs("checkpoint", path, -1, problem, _FROM_LOG)
        return
    seal_end = CHECKPOINT_SEAL_POSITION + CHECKPOINT_SEAL_STRUCT.size
    unused = (*range(_KNOWN_TO_APACHE, CHECKPOINT_SEAL_POSITION), *range(seal_end, len(data)))
    if odd := [at for at in unused if data[at]]:
        what = f"{len(odd)} bytes that no known broker uses are not 0"
        findings.differs("checkpoint", path, odd[0], what, _FROM_LOG)


def _check_clean_stop(files: StoreFiles, findings: Findings) -> None:
    for name in (clean_stop.FILE_NAME, f"{clean_stop.FILE_NAME}.bak"):
        path, data = files.path(name), files.bytes_of(name)
        if data is None:
            continue
        try:
            clean_stop.decode(data)
        except ValueError as error:
            advice = "the next clean stop writes it again"
            findings.differs("clean stop", path, -1, f"the file is damaged: {error}", advice)


def _check_quarantine(files: StoreFiles, findings: Findings) -> None:
    """Check that each line of the quarantine log names an existing file of the size in the line."""
    path = files.path("quarantine/log.jsonl")
    data = files.bytes_of("quarantine", "log.jsonl")
    for number, line in enumerate((data or b"").splitlines(), 1):
        try:
            row = json.loads(line)
            saved, size = files.path(f"quarantine/{row['file']}"), row["end"] - row["start"]
            found = os.path.getsize(saved)
        except OSError:
            what = f"line {number} names {saved}, which does not exist"
        except (ValueError, KeyError, TypeError):
            what = f"line {number} cannot be read"
        else:
            what = f"line {number} names {saved} with {size} bytes, but it has {found}" if found != size else ""
        if what:
            findings.differs("quarantine", path, -1, what, "the broker does not use it")


def checkpoint_times(files: StoreFiles) -> tuple[int, ...]:
    """Return the checkpoint's store times in ms up to which log, queues and index are on disk; () without a complete one."""
    data = files.bytes_of("checkpoint") or b""
    return CHECKPOINT_STRUCT.unpack_from(data)[:3] if len(data) >= CHECKPOINT_SIZE else ()


def check_checkpoint_times(
    files: StoreFiles, times: tuple[int, ...], last_store_timestamp_ms: int, findings: Findings
) -> None:
    """Find checkpoint times after the store time of the log's last record: recovery would begin too late."""
    for number, (name, time_ms) in enumerate(zip(_CHECKPOINT_NAMES, times, strict=False)):
        if time_ms < 0 or time_ms > last_store_timestamp_ms:
            what = f"{name} is {time_ms}, but the log's last record was stored at {last_store_timestamp_ms}"
            findings.differs("checkpoint", files.path("checkpoint"), number * 8, what, _FROM_LOG)
