"""TLS on a master's port for slaves."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.tls import ClientAuth, TlsConfig, TlsMode
from pocketmq.runtime.lifecycle import StartError
from tests.broker.running import connected, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE, end_of, log_of, send
from tests.remoting.certificates import Authority


def settings(folder: Path, **changed: Any) -> TlsConfig:
    folder.mkdir(exist_ok=True)
    authority = Authority(folder)
    server, client = authority.certificate("server"), authority.certificate("client")
    files = {
        "server_cert_path": server.cert, "server_key_path": server.key, "server_trust_cert_path": authority.cert,
        "client_cert_path": client.cert, "client_key_path": client.key, "client_trust_cert_path": authority.cert,
        "client_auth_server": True, "server_auth_client": True, "server_need_client_auth": ClientAuth.REQUIRE,
    }  # fmt: skip
    return TlsConfig(**{"mode": TlsMode.PERMISSIVE, **files, **changed})


async def test_log_is_copied_over_tls_between_brokers_with_certificates(tmp_path: Path) -> None:
    tls = settings(tmp_path)
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, tls=tls, ha_use_tls=True) as master,
        running_broker(ns, store=SLAVE, broker_id=1, tls=tls, ha_use_tls=True) as slave,
    ):
        await send(client, master, 200, size=2000)
        await until(lambda: end_of(slave) == end_of(master) > 400_000)
        assert log_of(slave) == log_of(master)


async def test_plain_slave_gets_nothing_from_a_port_that_takes_only_tls(tmp_path: Path, caplog: Any) -> None:
    tls = settings(tmp_path)
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, tls=tls, ha_use_tls=True) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        await send(client, master, 3)
        await until(lambda: "it does not use TLS, but haUseTLS is true" in caplog.text)
        assert end_of(slave) == 0


async def test_slave_without_a_certificate_gets_nothing(tmp_path: Path, caplog: Any) -> None:
    bare = settings(tmp_path / "own", client_cert_path=None, client_key_path=None, client_auth_server=False)
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, tls=settings(tmp_path), ha_use_tls=True) as master,
        running_broker(ns, store=SLAVE, broker_id=1, tls=bare, ha_use_tls=True) as slave,
    ):
        await send(client, master, 3)
        await until(lambda: "the TLS connection cannot be established" in caplog.text)
        assert end_of(slave) == 0 and master.services.ha is not None and not master.services.ha.replicas()


async def test_plain_slaves_are_served_if_tls_is_available_but_not_required(tmp_path: Path) -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, tls=settings(tmp_path)) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        await send(client, master, 3)
        await until(lambda: end_of(slave) == end_of(master) > 0)


async def test_master_that_requires_tls_needs_a_certificate() -> None:
    with pytest.raises(StartError, match=r"haUseTLS=true: tls\.server\.certPath"):
        async with running_broker(ha_use_tls=True):
            pass
