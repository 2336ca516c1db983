"""TLS with the real Java clients and the real mqadmin; with `--server=apache` the same against 4.9.4.

The Go client of v2.1.2, the newest release, cannot speak TLS.
"""

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.conftest import need_java
from tests.interop.driver import Driver, DriverError
from tests.interop.drivers import Drivers
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import BROKER_NAME, CLUSTER_NAME, Cluster, Flavour
from tests.patience import PATIENCE_S
from tests.support.amount import cases

TOPIC = "Tls-topic"  # created by the first send

each_version = pytest.mark.parametrize("client_name", cases(["java_5_5_0"], ["java_4_9_4", "java_5_5_0"]))


class Certificates:
    """A certificate authority, certificates of a server and a client, and an unknown authority."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("not found: openssl")
        self._folder = folder
        for name in ("authority", "stranger"):
            self._openssl("req", "-x509", *self._new_key(name), "-out", self[name], "-days", "30", "-subj", f"/CN={name}")
        for name in ("server", "client"):
            self.make(name)

    def make(self, name: str) -> None:
        """Create a key and a certificate signed by the authority."""
        request = str(self._folder / f"{name}.csr")
        self._openssl("req", *self._new_key(name), "-out", request, "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", request, "-CA", self["authority"], "-CAkey", self.key("authority"),
                      "-CAcreateserial", "-out", self[name], "-days", "30")  # fmt: skip

    def __getitem__(self, name: str) -> str:
        return str(self._folder / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self._folder / f"{name}.key")

    def _new_key(self, name: str) -> tuple[str, ...]:
        return "-newkey", "rsa:2048", "-nodes", "-keyout", self.key(name)

    @staticmethod
    def _openssl(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    need_java()
    return Certificates(tmp_path_factory.mktemp("certificates"))


def keys(certificates: Certificates, mode: str, need: str) -> dict[str, object]:
    """Settings of both servers. The broker is a client of its name server."""
    return {
        "tls.server.mode": mode,
        "tls.test.mode.enable": "false",
        "tls.server.certPath": certificates["server"],
        "tls.server.keyPath": certificates.key("server"),
        "tls.server.need.client.auth": need,
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": certificates["authority"],
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": certificates["authority"],
        "tls.client.certPath": certificates["client"],
        "tls.client.keyPath": certificates.key("client"),
    }


@contextmanager
def running(folder: Path, flavour: Flavour, tls: dict[str, object]) -> Iterator[Cluster]:
    cluster = Cluster(folder, flavour, tls)
    try:
        cluster.start_broker()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def enforcing(flavour: Flavour, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("enforcing"), flavour, keys(certificates, "enforcing", "require")) as cluster:
        yield cluster


@contextmanager
def java(drivers: Drivers, cluster: Cluster, client_name: str = "java_4_9_4", **properties: str) -> Iterator[Driver]:
    """A Java client with these system properties, `_` standing for a dot; without any it uses no TLS."""
    options = " ".join(f"-D{name.replace('_', '.')}={value}" for name, value in properties.items())
    driver = drivers.another(client_name, cluster, JAVA_TOOL_OPTIONS=options)
    try:
        yield driver
    finally:
        driver.close()


def send_first(client: Driver, topic: str, bodies: list[str]) -> None:
    """Send to a name server and a broker that the client has no connection to yet.

    Beside a heavy load a handshake takes longer than the client waits for it, so it is repeated.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.send("p", topic, bodies)
            return
        except DriverError as error:
            if "No route info" not in str(error) or time.monotonic() > deadline:
                raise


def trusting(certificates: Certificates, authority: str = "authority", with_certificate: bool = True) -> dict[str, str]:
    shown: dict[str, str] = {}
    if with_certificate:
        shown = {"tls_client_certPath": certificates["client"], "tls_client_keyPath": certificates.key("client")}
    return {"tls_enable": "true", "tls_test_mode_enable": "false", "tls_client_authServer": "true",
            "tls_client_trustCertPath": certificates[authority], **shown}  # fmt: skip


@each_version
def test_messages_are_sent_and_consumed_over_tls(
    client_name: str, enforcing: Cluster, drivers: Drivers, certificates: Certificates
) -> None:
    """The name server enforces TLS too, and the broker registers with it over TLS."""
    with java(drivers, enforcing, client_name, **trusting(certificates)) as client:
        client.start_producer("p")
        bodies = [f"tls {number}" for number in range(20)]
        topic = f"{TOPIC}-{client_name}"
        send_first(client, topic, bodies)
        client.send("p", topic, ["large"], size=3_000_000)
        client.start_consumer("c", f"Tls-{client_name}", topic)
        got = client.wait_for("c", 21)
        assert {message.body for message in got if message.body_size < 100} == set(bodies)
        assert max(message.body_size for message in got) == 3_000_000


@each_version
@pytest.mark.parametrize("kind", ["plain", "untrusting", pytest.param("without a certificate", marks=pytest.mark.long)])
def test_clients_without_valid_tls_are_refused(
    client_name: str, kind: str, enforcing: Cluster, drivers: Drivers, certificates: Certificates
) -> None:
    properties = {
        "plain": {},
        "untrusting": trusting(certificates, authority="stranger"),
        "without a certificate": trusting(certificates, with_certificate=False),
    }[kind]
    with java(drivers, enforcing, client_name, **properties) as client:
        client.start_producer("p")
        with pytest.raises(DriverError, match=r"No route info|connect to|send request to|wait response on"):
            client.send("p", TOPIC, ["no"])


@pytest.mark.parametrize(
    ("kind", "authority", "with_certificate"),
    [
        ("right", "authority", True),
        pytest.param("untrusting", "stranger", True, marks=pytest.mark.long),
        pytest.param("without a certificate", "authority", False, marks=pytest.mark.long),
    ],
)
def test_mqadmin_uses_a_tls_properties_file(
    kind: str, authority: str, with_certificate: bool, enforcing: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    """mqadmin works with a certificate that both servers accept and with the right authority, and with neither alone."""
    properties = trusting(certificates, authority, with_certificate)
    file = tmp_path / "tls.properties"
    file.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in properties.items()))
    mqadmin = Mqadmin(tmp_path, JAVA_TOOL_OPTIONS=f"-Dtls.enable=true -Dtls.config.file={file}")
    try:
        listed = mqadmin.run(enforcing.namesrv_address, "clusterList")
        if kind == "right":
            deadline = time.monotonic() + PATIENCE_S  # its handshakes are late beside a heavy load
            while "Exception" in listed and time.monotonic() < deadline:
                listed = mqadmin.run(enforcing.namesrv_address, "clusterList")
            assert CLUSTER_NAME in listed and BROKER_NAME in listed and enforcing.broker_address in listed
            topic = "updateTopic", "-b", enforcing.broker_address, "-t", "Tls-by-mqadmin"
            assert "success" in mqadmin.run(enforcing.namesrv_address, *topic)
        else:
            assert re.search(r"(connect to|send request to|wait response on) .* (failed|timeout|exception)", listed), listed
            assert BROKER_NAME not in listed
    finally:
        mqadmin.close()


def test_plain_and_tls_clients_in_permissive_mode(
    flavour: Flavour, drivers: Drivers, certificates: Certificates, tmp_path: Path
) -> None:
    with (
        running(tmp_path, flavour, keys(certificates, "permissive", "none")) as cluster,
        java(drivers, cluster) as plain,
        java(drivers, cluster, **trusting(certificates, with_certificate=False)) as by_tls,
    ):
        for client, body in ((plain, "from plain"), (by_tls, "from tls")):
            client.start_producer("p")
            send_first(client, TOPIC, [body])
        for client, name in ((plain, "c"), (by_tls, "d")):
            client.start_consumer(name, f"Tls-{name}", TOPIC)
            assert {message.body for message in client.wait_for(name, 2)} == {"from plain", "from tls"}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_refused_client_gets_a_tls_alert(version: ssl.TLSVersion, enforcing: Cluster, certificates: Certificates) -> None:
    """The kind of alert is up to the TLS library: Java's is bad_certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = version
    context.load_verify_locations(certificates["authority"])
    for address in (enforcing.namesrv_address, enforcing.broker_address):
        host, _, port = address.rpartition(":")
        with (
            pytest.raises(ssl.SSLError, match="alert"),
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain) as by_tls,
        ):
            by_tls.recv(1)  # with TLS 1.3 the handshake ends for the client before its certificate is checked


def test_new_certificate_is_used_without_a_restart(enforcing: Cluster, certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates["authority"])
    context.load_cert_chain(certificates["client"], certificates.key("client"))

    def serial(address: str) -> object:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain, context.wrap_socket(plain) as by_tls:
            return (by_tls.getpeercert() or {})["serialNumber"]

    servers = enforcing.namesrv_address, enforcing.broker_address
    before = {serial(address) for address in servers}
    assert len(before) == 1
    certificates.make("server")
    deadline = time.monotonic() + PATIENCE_S
    while before & {serial(address) for address in servers}:
        assert time.monotonic() < deadline, f"condition not met after {PATIENCE_S} s"
        time.sleep(0.1)
