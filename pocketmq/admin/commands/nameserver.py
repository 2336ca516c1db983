"""Commands for name servers: their config and KV config, and the write permission of a broker's queues."""

from collections.abc import Callable

from pocketmq.admin.api.brokers import config_of
from pocketmq.admin.api.client import AdminError
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.commands.broker import say_config
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.route import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    KVConfigKeyRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermResponseHeader,
)
from pocketmq.runtime import properties_file

NAMESPACE = option("-s", "--namespace", "namespace of the key", required=True)
KEY = option("-k", "--key", "key", required=True)
VALUE = option("-v", "--value", "its new value", required=True)
BROKER_NAME = option("-b", "--brokerName", "broker name", required=True)


async def _change_permission(
    run: Run, code: int, broker_name: str, what: str, count: Callable[[RemotingCommand], int]
) -> object:
    """Change the permission of all topics of a broker at each name server, also after a failure of a name server."""
    counts, last = {}, None
    for address in run.admin.namesrv_addresses:
        where = f"{what} write perm of broker[{broker_name}] in name server[{address}]"
        try:
            counts[address] = count(await run.admin.call(address, code, BrokerNameRequestHeader(broker_name.strip())))
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
    return await _change_permission(
        run, RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker_name, "wipe",
        lambda answer: answer.header(WipeWritePermResponseHeader).wipe_topic_count,
    )  # fmt: skip


@command("addWritePerm", BROKER_NAME)
async def add_write_perm(run: Run, broker_name: str) -> object:
    """Restore the write permission of all topics of a broker at all given name servers."""
    return await _change_permission(
        run, RequestCode.ADD_WRITE_PERM_OF_BROKER, broker_name, "add",
        lambda answer: answer.header(AddWritePermResponseHeader).add_topic_count,
    )  # fmt: skip


@command("updateKvConfig", NAMESPACE, KEY, VALUE)
async def update_kv_config(run: Run, namespace: str, key: str, value: str) -> object:
    """Set a value in the KV config of all name servers."""
    namespace, key, value = namespace.strip(), key.strip(), value.strip()
    await run.admin.every_namesrv(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace, key, value))
    run.say("create or update kv config to namespace success.")
    return {"namespace": namespace, "key": key, "value": value}


@command("deleteKvConfig", NAMESPACE, KEY)
async def delete_kv_config(run: Run, namespace: str, key: str) -> object:
    """Delete a key from the KV config of all name servers."""
    namespace, key = namespace.strip(), key.strip()
    await run.admin.every_namesrv(RequestCode.DELETE_KV_CONFIG, KVConfigKeyRequestHeader(namespace, key))
    run.say("delete kv config from namespace success.")
    return {"namespace": namespace, "key": key}


@command("getNamesrvConfig")
async def get_namesrv_config(run: Run) -> object:
    """Show the config of all name servers."""
    answers = await run.admin.every_namesrv(RequestCode.GET_NAMESRV_CONFIG)
    result = {address: config_of(answer) for address, answer in answers.items()}
    for address, config in result.items():
        run.say(f"============{address}============")
        say_config(run, config)
    return result


@command("updateNamesrvConfig", KEY, VALUE)
async def update_namesrv_config(run: Run, key: str, value: str) -> object:
    """Change one key of the config of all name servers."""
    key, value = key.strip(), value.strip()
    body = properties_file.dumps({key: value}).encode()
    done = list(await run.admin.every_namesrv(RequestCode.UPDATE_NAMESRV_CONFIG, None, body))
    run.say(f"update name server config success![{', '.join(done)}]\n{key} : {value}")
    return {"nameServers": done, "key": key, "value": value}
