"""Commands for name servers: their config and KV config, and the write permission of a broker's queues."""

from collections.abc import Awaitable, Callable

from pocketmq.admin.api import nameservers
from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.commands.broker import say_config
from pocketmq.remoting.dispatch import RemotingError

NAMESPACE = option("-s", "--namespace", "namespace of the key", required=True)
KEY = option("-k", "--key", "key", required=True)
VALUE = option("-v", "--value", "its new value", required=True)
BROKER_NAME = option("-b", "--brokerName", "broker name", required=True)


Change = Callable[[AdminClient, str, str], Awaitable[int]]


async def _change_permission(run: Run, change: Change, broker_name: str, what: str) -> object:
    """Change the permission of all topics of a broker at each name server, also after a failure of a name server."""
    counts, last = {}, None
    for address in run.admin.namesrv_addresses:
        where = f"{what} write perm of broker[{broker_name}] in name server[{address}]"
        try:
            counts[address] = await change(run.admin, address, broker_name.strip())
        except (RemotingError, AdminError) as failure:
            run.say(f"{where} Failed")
            run.warn(failure)
            last = failure
            continue
        run.say(f"{where} OK, {counts[address]}")
    if last is not None and run.as_json:
        raise last
    return counts


@command("wipeWritePerm", BROKER_NAME)
async def wipe_write_perm(run: Run, broker_name: str) -> object:
    """Take the write permission from all topics of a broker at all given name servers."""
    return await _change_permission(run, nameservers.wipe_write_perm, broker_name, "wipe")


@command("addWritePerm", BROKER_NAME)
async def add_write_perm(run: Run, broker_name: str) -> object:
    """Restore the write permission of all topics of a broker at all given name servers."""
    return await _change_permission(run, nameservers.add_write_perm, broker_name, "add")


@command("updateKvConfig", NAMESPACE, KEY, VALUE)
async def update_kv_config(run: Run, namespace: str, key: str, value: str) -> object:
    """Set a value in the KV config of all name servers."""
    await nameservers.put_kv(run.admin, namespace.strip(), key.strip(), value.strip())
    run.say("create or update kv config to namespace success.")
    return {"namespace": namespace.strip(), "key": key.strip(), "value": value.strip()}


@command("deleteKvConfig", NAMESPACE, KEY)
async def delete_kv_config(run: Run, namespace: str, key: str) -> object:
    """Delete a key from the KV config of all name servers."""
    await nameservers.delete_kv(run.admin, namespace.strip(), key.strip())
    run.say("delete kv config from namespace success.")
    return {"namespace": namespace.strip(), "key": key.strip()}


@command("getNamesrvConfig")
async def get_namesrv_config(run: Run) -> object:
    """Show the config of all name servers."""
    result = await nameservers.namesrv_configs(run.admin)
    for address, config in result.items():
        run.say(f"============{address}============")
        say_config(run, config)
    return result


@command("updateNamesrvConfig", KEY, VALUE)
async def update_namesrv_config(run: Run, key: str, value: str) -> object:
    """Change one key of the config of all name servers."""
    done = await nameservers.update_namesrv_config(run.admin, key.strip(), value.strip())
    run.say(f"update name server config success![{', '.join(done)}]\n{key.strip()} : {value.strip()}")
    return {"nameServers": done, "key": key.strip(), "value": value.strip()}
