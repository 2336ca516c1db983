"""TLS on real sockets: modes, client certificates, and changed certificate files."""

import asyncio
import contextlib
import logging
import socket
import ssl

import pytest

from pocketmq.remoting.client import TlsMismatch
from pocketmq.remoting.command import Response, encode_request
from pocketmq.remoting.dispatch import Route, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.remoting.tls import ClientAuth, TlsConfig, TlsMode, client_tls, server_tls
from pocketmq.runtime.lifecycle import StartError
from tests.patience import PATIENCE_S
from tests.remoting.certificates import Authority

ECHO, BIG = 1, 2
TABLE = routes(
    Route(ECHO, NoHeader, lambda services, request: Response(body=request.body)),
    Route(BIG, NoHeader, lambda services, request: Response(body=[memoryview(b"x" * 100_000)] * 30)),
)
CLOSED = (ConnectionError, asyncio.IncompleteReadError)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def files(authority):
    """Settings of a server and clients that trust each other."""
    server, client = authority.certificate("server"), authority.certificate("client")
    return {
        "server_cert_path": server.cert, "server_key_path": server.key, "server_trust_cert_path": authority.cert,
        "client_cert_path": client.cert, "client_key_path": client.key, "client_trust_cert_path": authority.cert,
        "client_auth_server": True,
    }  # fmt: skip


def enforcing(files, **changed):
    return TlsConfig(**{"mode": TlsMode.ENFORCING, **files, **changed})


async def echo(remoting, address, config=None, code=ECHO, body=b"hello"):
    """Return the answer to a client's request; without `config` it does not use TLS."""
    client = remoting.client(tls=None if config is None else client_tls(config))
    return (await client.invoke(address, code, None, body)).body


async def test_permissive_port_accepts_tls_and_plain(remoting, files):
    config = enforcing(files, mode=TlsMode.PERMISSIVE)
    _, address = await remoting.serve(TABLE, tls=server_tls(config))
    for one in (None, config):
        assert await echo(remoting, address, one) == b"hello"
        assert len(await echo(remoting, address, one, BIG)) == 3_000_000
        assert await echo(remoting, address, one, ECHO, b"y" * 1_000_000) == b"y" * 1_000_000


async def test_plain_connection_is_closed_when_tls_is_enforced(remoting, files, caplog):
    config = enforcing(files)
    _, address = await remoting.serve(TABLE, tls=server_tls(config))
    assert await echo(remoting, address, config) == b"hello"
    with pytest.raises(TlsMismatch, match=f"connection to {address} closed: .*the server probably enforces TLS"):
        await echo(remoting, address)
    assert "does not use TLS" in caplog.text


async def test_tls_connection_is_refused_when_tls_is_disabled(remoting, files):
    config = enforcing(files, mode=TlsMode.DISABLED)
    assert server_tls(config) is None
    _, address = await remoting.serve(TABLE, tls=None)
    with pytest.raises(TlsMismatch, match=f"{address} does not accept a TLS connection"):
        await echo(remoting, address, config)
    assert await echo(remoting, address) == b"hello"


async def test_client_refuses_an_untrusted_server(remoting, files, tmp_path, caplog):
    _, address = await remoting.serve(TABLE, tls=server_tls(enforcing(files)))
    stranger = Authority(tmp_path, "stranger")
    with pytest.raises(TlsMismatch, match="trustCertPath"):
        await echo(remoting, address, enforcing(files, client_trust_cert_path=stranger.cert))
    await remoting.until(lambda: "the TLS connection cannot be established" in caplog.text)
    trusting = enforcing(files, client_trust_cert_path=stranger.cert, client_auth_server=False)
    assert await echo(remoting, address, trusting) == b"hello"


@pytest.mark.parametrize("auth", ClientAuth)
async def test_client_certificates_are_checked_as_configured(remoting, files, tmp_path, auth):
    config = enforcing(files, server_auth_client=True, server_need_client_auth=auth)
    _, address = await remoting.serve(TABLE, tls=server_tls(config))
    strange = Authority(tmp_path, "stranger").certificate("strange")
    without = enforcing(files, client_cert_path=None)
    other = enforcing(files, client_cert_path=strange.cert, client_key_path=strange.key)
    assert await echo(remoting, address, config) == b"hello"
    for client, is_accepted in ((without, auth is not ClientAuth.REQUIRE), (other, auth is ClientAuth.NONE)):
        if is_accepted:
            assert await echo(remoting, address, client) == b"hello"
        else:
            with pytest.raises(TlsMismatch, match="another certificate"):
                await echo(remoting, address, client)


ALERTS = {
    "signed by another authority": "TLSV1_ALERT_UNKNOWN_CA",
    "no certificate, TLS 1.2": "SSLV3_ALERT_HANDSHAKE_FAILURE",
    "no certificate, TLS 1.3": "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "valid, TLS 1.2, no common cipher": "SSLV3_ALERT_HANDSHAKE_FAILURE",
}


@pytest.mark.parametrize("shown", ALERTS)
async def test_refused_client_receives_a_tls_alert(remoting, files, tmp_path, shown):
    config = enforcing(files, server_auth_client=True, server_need_client_auth=ClientAuth.REQUIRE)
    _, address = await remoting.serve(TABLE, tls=server_tls(config))
    strange = Authority(tmp_path, "stranger").certificate("strange")
    changed = {"client_cert_path": None} if "no certificate" in shown else {}
    if shown == "signed by another authority":
        changed = {"client_cert_path": strange.cert, "client_key_path": strange.key}
    context = client_tls(enforcing(files, **changed)).context
    if "1.2" in shown:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if "cipher" in shown:
        context.set_ciphers("AES128-GCM-SHA256")  # a cipher for RSA keys only; the server has another kind of key

    def ask() -> None:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain, context.wrap_socket(plain) as by_tls:
            by_tls.recv(1)  # with TLS 1.3 the client's handshake ends before the server checks its certificate

    with pytest.raises(ssl.SSLError) as refused:
        await asyncio.to_thread(ask)
    assert refused.value.reason == ALERTS[shown]


async def test_changed_certificates_apply_to_new_connections(remoting, files, authority, caplog):
    tls = server_tls(enforcing(files))
    _, address = await remoting.serve(TABLE, tls=tls)
    host, _, port = address.rpartition(":")

    async def serial():
        context = client_tls(enforcing(files)).context
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        subject = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return subject

    first, before = await serial(), tls.certificates.context
    tls.certificates.reload()
    assert tls.certificates.context is before
    authority.certificate("server")  # the same files with another certificate
    tls.certificates.reload()
    second = await serial()
    assert second != first
    with open(files["server_key_path"], "w") as file:
        file.write("no key")
    with caplog.at_level(logging.ERROR):
        tls.certificates.reload()
        tls.certificates.reload()
    assert caplog.text.count("certificates cannot be reloaded") == 1
    assert await serial() == second


async def test_connection_without_handshake_is_dropped(remoting, files):
    _, address = await remoting.serve(TABLE, tls=server_tls(enforcing(files)), idle_s=0.05)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    writer.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
async def test_pending_handshakes_have_a_timeout_and_make_room_for_clients(remoting, files, monkeypatch, sent):
    monkeypatch.setattr("pocketmq.remoting.listener.HANDSHAKE_MAX_S", 1.0)
    limits = ConnectionLimits(max_connections=2, slow_connection_seconds=1)
    config = enforcing(files, mode=TlsMode.PERMISSIVE)
    _, address = await remoting.serve(TABLE, tls=server_tls(config), limits=limits)
    host, port = address.split(":")
    waiting = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    for _, writer in waiting:
        writer.write(sent)
    await asyncio.sleep(0)
    assert await echo(remoting, address) == b"hello", "a third connection takes the place of the oldest"
    for reader, writer in waiting:
        with contextlib.suppress(*CLOSED):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()


async def test_frame_may_arrive_in_pieces(remoting, files):
    _, address = await remoting.serve(TABLE, tls=server_tls(enforcing(files, mode=TlsMode.PERMISSIVE)))
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frame = b"".join(bytes(part) for part in encode_request(ECHO, None, b"hello", 7))
    for at in range(len(frame)):
        writer.write(frame[at : at + 1])
        await writer.drain()
        await asyncio.sleep(0)
    size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), PATIENCE_S), "big")
    assert (await reader.readexactly(size)).endswith(b"hello")
    writer.close()


async def test_closing_server_does_not_wait_for_handshakes(remoting, files, monkeypatch):
    monkeypatch.setattr("pocketmq.remoting.listener.HANDSHAKE_MAX_S", 1000.0)
    server, address = await remoting.serve(TABLE, tls=server_tls(enforcing(files)))
    host, _, port = address.rpartition(":")
    silent = await asyncio.open_connection(host, int(port))
    half = await asyncio.open_connection(host, int(port))
    half[1].write(b"\x16\x03\x01")
    await asyncio.sleep(0)
    await asyncio.wait_for(server.close(), PATIENCE_S)
    for reader, writer in (silent, half):
        with pytest.raises(CLOSED):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
        writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection(host, int(port))


async def test_test_mode_creates_a_certificate(remoting, authority):
    config = TlsConfig(test_mode_enable=True)
    _, address = await remoting.serve(TABLE, tls=server_tls(config))
    assert await echo(remoting, address, config) == b"hello"
    assert await echo(remoting, address) == b"hello"


def test_encrypted_key_needs_its_password(files, authority):
    locked = authority.certificate("locked", password="open sesame")
    paths = {"server_cert_path": locked.cert, "server_key_path": locked.key}
    assert server_tls(enforcing(files, **paths, server_key_password="open sesame"))
    for password in (None, "wrong"):
        with pytest.raises(StartError, match=r"tls\.server\.keyPath"):
            server_tls(enforcing(files, **paths, server_key_password=password))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"server_cert_path": None}, "tls.server.certPath"),
        ({"server_cert_path": "/nowhere.pem"}, "/nowhere.pem"),
        ({"server_key_path": "/nowhere.key"}, "/nowhere.key"),
        (
            {"server_auth_client": True, "server_need_client_auth": ClientAuth.REQUIRE, "server_trust_cert_path": "/no.pem"},
            "tls.server.trustCertPath=/no.pem",
        ),
        ({"server_need_client_auth": ClientAuth.REQUIRE}, "tls.server.authClient=true"),
    ],
)
def test_invalid_setting_is_named_in_the_error(files, changed, named):
    with pytest.raises(StartError) as caught:
        server_tls(enforcing(files, **changed))
    assert named in str(caught.value)


def test_permissive_mode_without_certificate_is_plain():
    assert server_tls(TlsConfig()) is None


def test_values_of_the_tls_config_file_take_precedence(tmp_path):
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.certPath=/b.pem\ntls.server.need.client.auth=require\ntls.server.mode=disabled\nother=1\n")
    config = TlsConfig(mode=TlsMode.ENFORCING, config_file=str(path), server_cert_path="/a.pem")
    config.read_config_file()
    assert (config.server_cert_path, config.server_need_client_auth) == ("/b.pem", ClientAuth.REQUIRE)
    assert config.mode is TlsMode.ENFORCING
    path.write_text("tls.server.authClient=perhaps\n")
    with pytest.raises(StartError, match="authClient=perhaps: expected true or false"):
        config.read_config_file()
    with pytest.raises(StartError, match="gone.properties"):
        TlsConfig(config_file=str(tmp_path / "gone.properties")).read_config_file()
