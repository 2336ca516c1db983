"""TLS of the gRPC port: enforced, beside plain connections on the same port, and with certificates of clients."""

import grpc
import pytest
import pytest_asyncio

from pocketmq.admin.api import consumers
from pocketmq.client.access import Access
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.remoting.tls import ClientAuth, TlsConfig, TlsMode
from pocketmq.runtime.lifecycle import StartError
from tests.proxy.grpc_client import message, producer_settings
from tests.proxy.served import running_front, running_proxy
from tests.remoting.certificates import Authority

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEND = pb.SendMessageRequest(messages=[message("normal")])


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority):
    return authority.certificate("broker")


def credentials(authority, client=None):
    """Return the credentials of a client, with a certificate of its own if one is given."""
    pair = () if client is None else [_read(client.key), _read(client.cert)]
    return grpc.ssl_channel_credentials(_read(authority.cert), *pair)


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def tls(server, mode, **more):
    return TlsConfig(mode=mode, server_key_path=server.key, server_cert_path=server.cert, **more)


async def unavailable(client):
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await client.ask(SEND)
    return failure.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=("broker", "mqproxy"))
async def permissive(request, server):
    """A front that takes plain and TLS connections."""
    config = tls(server, TlsMode.PERMISSIVE)
    async with running_front(tls=config) as served:
        if request.param == "broker":
            yield served
            return
        async with running_proxy(served, config) as proxied:
            yield proxied


async def test_plain_and_tls_connections_are_served_on_the_same_port(permissive, authority):
    async with permissive.client("plain") as plain, permissive.client("tls", credentials=credentials(authority)) as secure:
        await plain.done(SEND)
        await secure.done(SEND)
        await plain.done(SEND)


@pytest.mark.parametrize("is_secure", [True, False])
async def test_a_client_of_a_shared_port_is_shown_with_its_own_address(permissive, authority, is_secure):
    async with (
        permissive.client("shown", credentials=credentials(authority) if is_secure else None) as client,
        client.telemetry(producer_settings("normal")),
    ):
        (one,) = await consumers.producers(permissive.admin, "normal", "normal")
        assert one.client_id == "shown"
        host, _, port = one.client_addr.rpartition(":")
        assert host == "127.0.0.1"
        if permissive.port == permissive.broker._front.port:  # of mqproxy the broker sees a connection of its own
            assert (host, int(port)) in {one.peer for one in permissive.broker._front._http2.open}


async def test_a_large_message_passes_the_shared_port(permissive, authority):
    body = bytes(1_000_000)
    async with permissive.client("large", credentials=credentials(authority)) as client:
        await client.send("normal", body)


async def test_a_front_that_enforces_tls_refuses_plain_connections(server, authority):
    access = Access(tls=TlsConfig())
    async with running_front(tls=tls(server, TlsMode.ENFORCING), access=access) as served:
        async with served.client(credentials=credentials(authority)) as client:
            await client.done(SEND)
        async with served.client() as plain:
            assert await unavailable(plain)


async def test_a_client_without_a_trusted_certificate_is_refused_where_one_is_required(server, authority, tmp_path):
    ours, foreign = authority.certificate("client"), Authority(tmp_path, "foreign").certificate("stranger")
    config = tls(
        server,
        TlsMode.PERMISSIVE,
        server_auth_client=True,
        server_need_client_auth=ClientAuth.REQUIRE,
        server_trust_cert_path=authority.cert,
    )
    async with running_front(tls=config) as served:
        async with served.client(credentials=credentials(authority, ours)) as client:
            await client.done(SEND)
        for wrong in (None, foreign):
            async with served.client(credentials=credentials(authority, wrong)) as client:
                assert await unavailable(client)


async def test_a_front_disabled_for_tls_takes_plain_connections_only(server, authority):
    async with running_front(tls=tls(server, TlsMode.DISABLED)) as served:
        async with served.client() as plain:
            await plain.done(SEND)
        async with served.client(credentials=credentials(authority)) as client:
            assert await unavailable(client)


async def test_a_front_does_not_start_without_its_certificate(authority, tmp_path):
    async with running_front() as served:
        missing = TlsConfig(server_key_path=str(tmp_path / "none.key"), server_cert_path=str(tmp_path / "none.pem"))
        with pytest.raises(StartError, match=r"tls\.server\.certPath"):
            async with running_proxy(served, missing):
                pass
        garbage = tmp_path / "garbage.pem"
        garbage.write_text("nothing")
        broken = TlsConfig(server_key_path=str(garbage), server_cert_path=str(garbage))
        with pytest.raises(StartError, match=r"tls\.server\.certPath"):
            async with running_proxy(served, broken):
                pass


async def test_a_key_with_a_password_is_used(tmp_path):
    locked = Authority(tmp_path, "locked").certificate("broker", "secret")
    config = TlsConfig(server_key_path=locked.key, server_cert_path=locked.cert, server_key_password="secret")
    async with (
        running_front() as served,
        running_proxy(served, config) as proxied,
        proxied.client(credentials=grpc.ssl_channel_credentials(_read(tmp_path / "locked.pem"))) as client,
    ):
        await client.done(SEND)


async def test_a_renewed_certificate_is_used_for_new_connections(server, authority, tmp_path):
    second = Authority(tmp_path, "second")
    renewed = second.certificate("broker")
    folder = tmp_path / "used"
    folder.mkdir()
    for name, text in (("key", _read(server.key)), ("cert", _read(server.cert))):
        (folder / name).write_bytes(text)
    config = TlsConfig(server_key_path=str(folder / "key"), server_cert_path=str(folder / "cert"))
    async with running_front() as served, running_proxy(served, config) as proxied:
        async with proxied.client(credentials=credentials(authority)) as client:
            await client.done(SEND)
        (folder / "key").write_bytes(_read(renewed.key))
        (folder / "cert").write_bytes(_read(renewed.cert))
        async with proxied.client(credentials=credentials(second)) as client:
            await client.done(SEND)
