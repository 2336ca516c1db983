"""Commands for brokers: their state, config, files and replication."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from pocketmq.admin.admin_client import AdminError, sorted_addresses
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.formats import time_millis
from pocketmq.admin.output import Table
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting.bodies import KVTable
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime import properties_file
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
async def broker_status(run: Run, broker_addr: str | None, cluster_name: str | None) -> object:
    """Show the runtime info of a broker, or of all brokers of a cluster."""
    result: dict[str, Mapping[str, str]] = {}
    for address in await run.admin.targets(broker_addr, cluster_name, with_slaves=True):
        try:
            table = (await run.admin.fetch(address, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
        except (RemotingError, AdminError) as failure:
            if broker_addr:
                raise
            run.warn(failure)
            continue
        result[address] = table
        for key, value in sorted(table.items()):
            run.say(f"{'' if broker_addr else f'{address:<24} '}{key:<32}: {value}")
    return result


@command(
    "updateBrokerConfig",
    *WHERE,
    option("-k", "--key", "config key", required=True),
    option("-v", "--value", "its new value", required=True),
    option("-a", "--updateAllBroker", "with -c: also the slaves (true)", type=bool, default=False),
)
async def update_broker_config(
    run: Run, broker_addr: str | None, cluster_name: str | None, key: str, value: str, update_all_broker: bool
) -> object:
    """Change one key of the config of a running broker."""
    body = properties_file.dumps({key.strip(): value.strip()}).encode()
    done, last = [], None
    for address in await run.admin.targets(broker_addr, cluster_name, with_slaves=update_all_broker):
        try:
            await run.admin.broker(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)
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
async def get_broker_config(run: Run, broker_addr: str | None, cluster_name: str | None) -> object:
    """Show the config of a broker, or of all brokers of a cluster."""
    if broker_addr:
        titles = {broker_addr: broker_addr}
    else:
        titles = await _titles(run, cluster_name)
    result = {}
    for address, title in titles.items():
        config = await broker_config(run, address)
        run.say(f"============{title}============")
        say_config(run, config)
        run.say()
        result[address] = config
    return result


async def _titles(run: Run, cluster: str | None) -> dict[str, str]:
    """Return the addresses of a cluster's brokers with the titles of their configs."""
    titles: dict[str, str] = {}
    known = await run.admin.targets(None, cluster, with_slaves=True)
    info = await run.admin.cluster_info()
    for name in info.cluster_addr_table[cluster or ""]:
        master = info.broker_addr_table[name].broker_addrs.get(MASTER_ID)
        for _, address in sorted_addresses(info.broker_addr_table[name]):
            is_master = address == master
            titles[address] = f"Master: {address}" if is_master else f"My Master: {master}=====Slave: {address}"
    return {address: titles[address] for address in known}


async def broker_config(run: Run, address: str) -> dict[str, str]:
    """Return the config of a broker."""
    answer = await run.admin.broker(address, RequestCode.GET_BROKER_CONFIG)
    return properties_file.loads(properties_file.decode(bytes(answer.body)))


def say_config(run: Run, config: Mapping[str, str]) -> None:
    """Print keys and values in the order of the keys."""
    for key, value in sorted(config.items()):
        run.say(f"{key:<50}=  {value}")


async def _clean(run: Run, broker: str | None, cluster: str | None, code: int) -> object:
    """Send a request without fields to one broker, to all of a cluster, or to all brokers."""
    if broker:
        addresses = [broker]
    else:
        addresses = [at for name in await run.admin.clusters(cluster) for at in await run.admin.masters_and_slaves(name)]
    for address in addresses:
        await run.admin.broker(address, code)
    run.say("success" if addresses else "false")
    return {"brokers": addresses}


@command("cleanExpiredCQ", *ANYWHERE)
async def clean_expired_cq(run: Run, broker_addr: str | None, cluster: str | None) -> object:
    """Delete ConsumeQueue files whose records are no longer in the log."""
    return await _clean(run, broker_addr, cluster, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


@command("deleteExpiredCommitLog", *ANYWHERE)
async def delete_expired_commit_log(run: Run, broker_addr: str | None, cluster: str | None) -> object:
    """Delete expired CommitLog files now."""
    return await _clean(run, broker_addr, cluster, RequestCode.DELETE_EXPIRED_COMMITLOG)


@command("cleanUnusedTopic", *ANYWHERE)
async def clean_unused_topic(run: Run, broker_addr: str | None, cluster: str | None) -> object:
    """Delete the queues of topics that no longer exist."""
    return await _clean(run, broker_addr, cluster, RequestCode.CLEAN_UNUSED_TOPIC)


@command("haStatus", *WHERE, option("-i", "--interval", "show it every so many seconds", type=WholeNumber(1)))
async def ha_status(run: Run, broker_addr: str | None, cluster_name: str | None, interval: int | None) -> object:
    """Show the replication of a broker, or of a cluster's masters: how far each slave lags (a request of 5.x)."""
    if broker_addr is None and cluster_name is None:
        say(click.get_current_context().get_help())
        return None
    while True:
        result = {}
        for address in await run.admin.targets(broker_addr, cluster_name):
            answer = await run.admin.broker(address, RequestCode.GET_BROKER_HA_STATUS)
            info = msgspec.json.decode(answer.body)
            _say_replication(run, address, info)
            result[address] = info
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
