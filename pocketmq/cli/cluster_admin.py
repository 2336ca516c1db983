"""Requests to the brokers of a cluster, which are found through its name server."""

from typing import Self

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.route import MASTER_ID, ask_namesrv
from pocketmq.remoting.bodies import ClusterInfo, decode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Body, RemotingCommand
from pocketmq.remoting.header import CommandHeader

TIMEOUT_S = 30.0
FIND_TIMEOUT_S = 5.0
"""Time-out of the request for the list of brokers, which a name server answers from memory."""


class ClusterAdmin:
    """Client of a cluster's brokers. `brokers`: address of the master by broker name. Enter it inside a running loop."""

    def __init__(self, namesrv: str, access: Access = PLAIN) -> None:
        """`namesrv`: HOST:PORT, several separated by `;`; the first one that answers is used."""
        self._remoting = access.client()
        self._namesrv = [address for address in namesrv.replace(",", ";").split(";") if address]
        self.brokers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        try:
            code = RequestCode.GET_BROKER_CLUSTER_INFO
            _, answer = await ask_namesrv(self._remoting, self._namesrv, code, timeout_s=FIND_TIMEOUT_S)
            table = decode_body(ClusterInfo, answer.body).broker_addr_table
        except BaseException:
            await self._remoting.close()
            raise
        masters = {name: data.broker_addrs.get(MASTER_ID) for name, data in table.items()}
        self.brokers = {name: address for name, address in masters.items() if address is not None}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remoting.close()

    async def call(self, address: str, code: int, header: CommandHeader | None = None, body: Body = b"") -> RemotingCommand:
        """Send a request to one server. Raises RemotingError for a refusal, OSError or TimeoutError."""
        return await self._remoting.call(address, code, header, body, TIMEOUT_S)
