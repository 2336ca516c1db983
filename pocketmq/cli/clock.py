"""`pocketmq clock`: shows the message time of brokers, and advances it if they were started with --test-clock."""

import argparse
import re
import sys
from datetime import UTC, datetime
from typing import Final

from pocketmq.cli import server_options
from pocketmq.cli.cluster_admin import ClusterAdmin
from pocketmq.client.access import Access
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers.delay import AdvanceClockRequestHeader, ClockResponseHeader

_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """Return the ms of a duration such as `30m`, `1h30m`, `250ms`, `400d`. Raises ValueError that lists valid forms."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration: write 250ms, 10s, 30m, 1h30m or 400d")
    return sum(int(number) * _UNIT_MS[unit] for number, unit in parts)


def run(options: argparse.Namespace) -> int:
    """Show or advance the time, one line per broker. Returns the exit code."""
    try:
        ms = None if options.action != "advance" else parse_duration_ms(options.duration or "")
        if options.action == "read" and options.duration:
            raise ValueError(f"unexpected argument {options.duration!r}: write `pocketmq clock advance {options.duration}`")
    except ValueError as wrong:
        print(f"pocketmq clock: {wrong}", file=sys.stderr)
        return 2
    return server_options.run(options, "clock", lambda access: _show(options.namesrv, access, ms))


async def _show(namesrv: str, access: Access, ms: int | None) -> int:
    async with ClusterAdmin(namesrv, access) as admin:
        for name, address in sorted(admin.brokers.items()):
            now = await (read_clock(admin, address) if ms is None else advance_clock(admin, address, ms))
            kind = "test clock" if now.is_virtual else "the machine's clock"
            moment = datetime.fromtimestamp(now.now / 1000, UTC).astimezone()
            print(f"{name}  {moment.isoformat(timespec='milliseconds')}  {now.now}  {kind}", flush=True)
    return 0


async def read_clock(admin: ClusterAdmin, address: str) -> ClockResponseHeader:
    """Return a broker's message time."""
    return _clock(await admin.call(address, RequestCode.READ_CLOCK))


async def advance_clock(admin: ClusterAdmin, address: str, ms: int) -> ClockResponseHeader:
    """Advance a broker's time by `ms`; messages due by then are in their topics afterwards."""
    return _clock(await admin.call(address, RequestCode.ADVANCE_CLOCK, AdvanceClockRequestHeader(ms)))


def _clock(answer: RemotingCommand) -> ClockResponseHeader:
    return answer.header(ClockResponseHeader)
