"""The gRPC front in the broker's process: its clients are served by the broker's own dispatcher, without sockets.

Not imported without `grpcServerPort`, because the library for its messages takes memory.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pocketmq.broker.handlers import ROUTES
from pocketmq.broker.services import Services
from pocketmq.proxy.clients.accounts import SignerOf
from pocketmq.proxy.clients.asked import ROUTES as ASKED
from pocketmq.proxy.clients.upstream import LocalUpstream
from pocketmq.proxy.config import GrpcConfig
from pocketmq.proxy.front import Front
from pocketmq.proxy.server import GrpcServer
from pocketmq.remoting.bodies import encode_body
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Dispatcher, RemotingError, Route, routes
from pocketmq.remoting.headers.consumer import GroupRequestHeader
from pocketmq.remoting.local_client import LocalClient
from pocketmq.remoting.server import RemotingServer
from pocketmq.remoting.signature import Signer
from pocketmq.remoting.tls import TlsConfig


class _Configurations(NamedTuple):
    """The broker as the front itself asks it: without access checks, and only for configurations."""

    channels: Channels
    dispatcher: Dispatcher
    listeners: Sequence[object]


def _group_config(services: Services, request: Request[GroupRequestHeader]) -> Response:
    """Return the config of a group; a missing one is not created, because the client's rights are not checked here."""
    found = services.groups.get(request.header.group)
    if found is None:
        raise RemotingError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group {request.header.group} in this broker")
    return Response(body=encode_body(found))


_INSIDE: Final = routes(
    ROUTES[RequestCode.GET_TOPIC_CONFIG],
    Route(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader, _group_config),
)


def grpc_server(services: Services, server: RemotingServer, config: GrpcConfig, tls: TlsConfig) -> GrpcServer:
    """Return the front of a broker, not started."""
    inside = Dispatcher(services, _INSIDE)
    asked = _Configurations(server.channels, inside, server.listeners)
    address = services.broker_address
    upstream = LocalUpstream(
        LocalClient(services.turn, services.timers, {address: server}, ASKED),
        LocalClient(services.turn, services.timers, {address: asked}),
        services.config.broker_name,
        address,
    )
    front = Front(config, upstream, _signer_of(services), services.clock.message_time_ms)
    return GrpcServer(front, config, tls, services.timers, server.channels.share, services.config)


def _signer_of(services: Services) -> SignerOf | None:
    """Return the function that finds the signer of an account, None without access control."""
    permissions, users = services.permissions, services.users
    if permissions is None and users is None:
        return None

    def signer_of(name: str) -> Signer | None:
        found = permissions.rules.accounts.get(name) if permissions is not None else users and users.account(name)
        return found.signer if found else None

    return signer_of
