"""Commands for brokers: their state, config, files and replication."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from pocketmq.admin.api import brokers
from pocketmq.admin.api.client import AdminError, Where
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.formats import time_millis
from pocketmq.admin.output import Table
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.command_line.commands import say
from pocketmq.runtime.command_line.option_types import WholeNumber

WHERE = targets("this broker", "all masters of this cluster")
ALL_BROKERS = targets("this broker", "all brokers of this cluster")
ANYWHERE = targets("only this broker", "only the brokers of this cluster", "--cluster")

SLAVES = Table(
    "#SlaveAddr|#SlaveAckOffset|#Diff|#TransferSpeed(KB/s)|#Status|#TransferFromWhere",
    "%-32s  %-16s %16s %16s %16s %16s",
    "slaveAddr ackOffset lagBytes kilobytesPerSecond status transferFromWhere",
    "%-32s  %-16d %16d %16.2f %16s %16d",
)


@command("brokerStatus", *ALL_BROKERS)
async def broker_status(run: Run, where: Where) -> object:
    """Show the runtime info of a broker, or of all brokers of a cluster."""
    result: dict[str, Mapping[str, str]] = {}
    for address in await run.admin.targets(where, with_slaves=True):
        try:
            table = await brokers.runtime_info(run.admin, address)
        except (RemotingError, AdminError) as failure:
            if where.broker:
                raise
            run.warn(failure)
            continue
        result[address] = table
        for key, value in sorted(table.items()):
            run.say(f"{'' if where.broker else f'{address:<24} '}{key:<32}: {value}")
    return result


@command(
    "updateBrokerConfig",
    *WHERE,
    option("-k", "--key", "config key", required=True),
    option("-v", "--value", "its new value", required=True),
    option("-a", "--updateAllBroker", "with -c: also the slaves (true)", type=bool, default=False),
)
async def update_broker_config(run: Run, where: Where, key: str, value: str, update_all_broker: bool) -> object:
    """Change one key of the config of a running broker."""
    done, last = [], None
    for address in await run.admin.targets(where, with_slaves=update_all_broker):
        try:
            await brokers.update_broker_config(run.admin, address, key.strip(), value.strip())
        except (RemotingError, AdminError) as failure:
            if last is not None:
                run.warn(last)
            last = failure
            continue
        run.say(f"update broker config success, {address}")
        done.append(address)
    if last is not None:
        raise last
    return {"brokers": done, "key": key.strip(), "value": value.strip()}


@command("getBrokerConfig", *ALL_BROKERS)
async def get_broker_config(run: Run, where: Where) -> object:
    """Show the config of a broker, or of all brokers of a cluster."""
    if where.broker:
        titles = {where.broker: where.broker}
    else:
        masters = await brokers.masters_by_address(run.admin, where.cluster)
        titles = {
            address: f"Master: {address}" if address == master else f"My Master: {master}=====Slave: {address}"
            for address, master in masters.items()
        }
    result = {}
    for address, title in titles.items():
        result[address] = await brokers.broker_config(run.admin, address)
        run.say(f"============{title}============")
        say_config(run, result[address])
        run.say()
    return result


def say_config(run: Run, config: Mapping[str, str]) -> None:
    """Print keys and values in the order of the keys."""
    for key, value in sorted(config.items()):
        run.say(f"{key:<50}=  {value}")


async def _clean(run: Run, where: Where, code: int) -> object:
    addresses = await brokers.request_everywhere(run.admin, where, code)
    run.say("success" if addresses else "false")
    return {"brokers": addresses}


@command("cleanExpiredCQ", *ANYWHERE)
async def clean_expired_cq(run: Run, where: Where) -> object:
    """Delete ConsumeQueue files whose records are no longer in the log."""
    return await _clean(run, where, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


@command("deleteExpiredCommitLog", *ANYWHERE)
async def delete_expired_commit_log(run: Run, where: Where) -> object:
    """Delete expired CommitLog files now."""
    return await _clean(run, where, RequestCode.DELETE_EXPIRED_COMMITLOG)


@command("cleanUnusedTopic", *ANYWHERE)
async def clean_unused_topic(run: Run, where: Where) -> object:
    """Delete the queues of topics that no longer exist."""
    return await _clean(run, where, RequestCode.CLEAN_UNUSED_TOPIC)


@command("haStatus", *WHERE, option("-i", "--interval", "show it every so many seconds", type=WholeNumber(1)))
async def ha_status(run: Run, where: Where, interval: int | None) -> object:
    """Show the replication of a broker, or of a cluster's masters: how far each slave lags (a request of 5.x)."""
    if where == (None, None):
        say(click.get_current_context().get_help())
        return None
    while True:
        result = {}
        for address in await run.admin.targets(where):
            result[address] = await brokers.ha_status(run.admin, address)
            _say_replication(run, address, result[address])
        if interval is None or run.as_json:
            return result
        await asyncio.sleep(interval)


def _say_replication(run: Run, address: str, info: dict[str, Any]) -> None:
    if not info["master"]:
        client = info["haClientRuntimeInfo"]
        run.say(f"\n#MasterAddr\t{client.get('masterAddr')}")
        run.say(f"#CommitLogMaxOffset\t{client['maxOffset']}")
        run.say(f"#TransferSpeed(KB/s)\t{client['transferredByteInSecond'] / 1024:.2f}")
        run.say(f"#LastReadTime\t{time_millis(client['lastReadTimestamp'])}")
        run.say(f"#LastWriteTime\t{time_millis(client['lastWriteTimestamp'])}")
        run.say(f"#MasterFlushOffset\t{client['masterFlushOffset']}")
        return
    slaves = info["haConnectionInfo"]
    run.say(f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{info['masterCommitLogMaxOffset']}")
    run.say(f"#SlaveNum\t{len(slaves)}\n#InSyncSlaveNum\t{info['inSyncSlaveNums']}")
    rows = [
        (
            one["addr"],
            one["slaveAckOffset"],
            one["diff"],
            one["transferredByteInSecond"] / 1024,
            "OK" if one["inSync"] else "Fall Behind",
            one["transferFromWhere"],
        )
        for one in slaves
    ]
    run.table(SLAVES, rows)
