"""Name servers: their config and KV config, and the write permission of a broker's queues."""

from pocketmq.admin.api.client import AdminClient, properties_of
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.route import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    GetKVConfigResponseHeader,
    KVConfigKeyRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermResponseHeader,
)
from pocketmq.runtime import properties_file


async def put_kv(admin: AdminClient, namespace: str, key: str, value: str) -> None:
    """Set a value in the KV config of all name servers."""
    await admin.every_namesrv(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace, key, value))


async def get_kv(admin: AdminClient, namespace: str, key: str) -> str:
    """Return a value of the KV config of a name server. Raises RemotingError with QUERY_NOT_FOUND."""
    answer = await admin.namesrv(RequestCode.GET_KV_CONFIG, KVConfigKeyRequestHeader(namespace, key))
    return answer.header(GetKVConfigResponseHeader).value or ""


async def delete_kv(admin: AdminClient, namespace: str, key: str) -> None:
    """Delete a key from the KV config of all name servers."""
    await admin.every_namesrv(RequestCode.DELETE_KV_CONFIG, KVConfigKeyRequestHeader(namespace, key))


async def namesrv_configs(admin: AdminClient) -> dict[str, dict[str, str]]:
    """Return the config of all name servers by address."""
    answers = await admin.every_namesrv(RequestCode.GET_NAMESRV_CONFIG)
    return {address: properties_of(answer) for address, answer in answers.items()}


async def update_namesrv_config(admin: AdminClient, key: str, value: str) -> list[str]:
    """Change one key of the config of all name servers. Return their addresses."""
    body = properties_file.dumps({key: value}).encode()
    return list(await admin.every_namesrv(RequestCode.UPDATE_NAMESRV_CONFIG, None, body))


async def wipe_write_perm(admin: AdminClient, address: str, broker_name: str) -> int:
    """Take the write permission from all topics of a broker at one name server. Return the number of topics."""
    answer = await admin.call(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader(broker_name))
    return answer.header(WipeWritePermResponseHeader).wipe_topic_count


async def add_write_perm(admin: AdminClient, address: str, broker_name: str) -> int:
    """Restore the write permission of all topics of a broker at one name server. Return the number of topics."""
    answer = await admin.call(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader(broker_name))
    return answer.header(AddWritePermResponseHeader).add_topic_count
