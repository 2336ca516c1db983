"""Command that watches all consumer groups: messages not consumed yet, clients with different subscriptions."""

import asyncio
from typing import Any

from pocketmq.admin.api.monitoring import GroupReport, group_report
from pocketmq.admin.api.topics import group_names
from pocketmq.admin.command import Run, command, option
from pocketmq.runtime.command_line.option_types import WholeNumber

UNDONE = "consumerGroup", "topic", "undoneMsgsTotal", "undoneMsgsSingleMQ", "undoneMsgsDelayTimeMills"


@command("startMonitoring", option("-i", "--interval", "seconds between two rounds", type=WholeNumber(1), default=60))
async def start_monitoring(run: Run, interval: int) -> object:
    """Report messages not consumed yet and clients with different subscriptions, until interrupted; with --json once."""
    while True:
        run.say("[MONITOR] =========================================beginRound")
        found = [await group_report(run.admin, group) for group in sorted(await group_names(run.admin))]
        reports = [row for report in found if report is not None for row in _rows(report)]
        for row in reports:
            if "topic" in row:
                fields = ", ".join(f"{name}={value}" for name, value in row.items())
                run.say(f"[MONITOR] reportUndoneMsgs: UndoneMsgs [{fields}]")
            else:
                run.say(
                    "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: "
                    f"ConsumerGroup: {row['consumerGroup']}, Subscription different"
                )
        run.say("[MONITOR] =========================================endRound")
        if run.as_json:
            return reports
        await asyncio.sleep(interval)


def _rows(report: GroupReport) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [dict(zip(UNDONE, one, strict=True)) for one in report.undone]
    return [*rows, {"consumerGroup": report.consumer_group, "subscriptionDifferent": True}] if report.differs else rows
