"""`pocketmq clock`: shows the message time of brokers, and advances it if they were started with --test-clock."""

from types import SimpleNamespace

from pocketmq.admin.api.delayed import advance_clock, read_clock
from pocketmq.cli import server_options
from pocketmq.cli.cluster_admin import ClusterAdmin
from pocketmq.client.access import Access
from pocketmq.runtime.command_line.commands import say
from pocketmq.store_tools.files.value_text import time_text


def run(options: SimpleNamespace) -> int:
    """Show the time, or advance it by `ms`, one line per broker. Returns the exit code."""
    return server_options.run(options, lambda access: _show(options.namesrv, access, options.duration))


async def _show(namesrv: str, access: Access, ms: int | None) -> int:
    async with ClusterAdmin(namesrv, access) as admin:
        for name, address in sorted(admin.brokers.items()):
            now = await (read_clock(admin, address) if ms is None else advance_clock(admin, address, ms))
            kind = "test clock" if now.is_virtual else "the machine's clock"
            say(f"{name}  {time_text(now.now)}  {now.now}  {kind}")
    return 0
