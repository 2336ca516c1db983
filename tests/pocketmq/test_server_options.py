"""Commands and client with servers that require TLS and credentials, and their error messages."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.main import main
from pocketmq.client.access import Access, read_credentials
from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.tls import TlsConfig, TlsMode
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.patience import PATIENCE_S

RULES = """
accounts:
- {accessKey: operator, secretKey: 12345678, admin: true}
- {accessKey: readerKey, secretKey: 87654321, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
"""


@dataclass
class Guarded:
    """The address of a name server that requires TLS, and files for the options `--credentials` and `--tls`."""

    namesrv: str
    operator: Path
    reader: Path
    tls: Path
    stranger: Path

    @property
    def options(self) -> list[str]:
        return ["-n", self.namesrv, "--credentials", str(self.operator), "--tls", str(self.tls)]


def self_signed(folder: Path, name: str) -> tuple[str, str]:
    """Create a certificate; return its path and that of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("not found: openssl")
    cert, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", cert, "-days", "30", "-subj", f"/CN={name}"],
        check=True, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    return cert, key


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    cert, key = self_signed(tmp_path, "server")
    strange, _ = self_signed(tmp_path, "strange")
    written(tmp_path / "conf" / "plain_acl.yml", RULES)
    checked = "tls.client.authServer=true\ntls.client.trustCertPath="

    def tls() -> TlsConfig:
        return TlsConfig(mode=TlsMode.ENFORCING, server_cert_path=cert, server_key_path=key, client_auth_server=True,
                         client_trust_cert_path=cert)  # fmt: skip

    namesrv = NameServer(NamesrvConfig(listen_port=0, kv_config_path=""), tls_config=tls())
    await namesrv.start()
    address = f"127.0.0.1:{namesrv.port}"
    config = BrokerConfig(
        namesrv_addr=address, broker_name="broker-a", listen_port=0, acl_enable=True, rocketmq_home=str(tmp_path)
    )
    store = MessageStoreConfig(store_path_root_dir="/store", mapped_file_size_commit_log=4 << 20)
    broker = Broker(config, store, disk=MemoryDisk(), tls_config=tls())
    await broker.start()
    try:
        yield Guarded(
            address,
            written(tmp_path / "conf" / "tools.yml", "accessKey: operator\nsecretKey: 12345678\n"),
            written(tmp_path / "reader.yml", "accessKey: readerKey\nsecretKey: 87654321\n"),
            written(tmp_path / "tls.properties", f"{checked}{cert}\n"),
            written(tmp_path / "strange.properties", f"{checked}{strange}\n"),
        )
    finally:
        await broker.stop()
        await namesrv.stop()


Run = Callable[..., "asyncio.Future[tuple[int, str, str]]"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`await run("delay", "ls", ...)` -> exit code, standard output, standard error."""

    def called(arguments: tuple[str, ...]) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return int(str(ended.value.code)), *capsys.readouterr()

    return lambda *arguments: asyncio.get_running_loop().run_in_executor(None, called, arguments)


async def test_all_commands_sign_requests_and_use_tls(guarded: Guarded, run: Run) -> None:
    assert (await run("produce", "T", "now", *guarded.options))[::2] == (0, "")
    assert (await run("produce", "T", "later", "--delay", "1h", "--key", "k", *guarded.options))[::2] == (0, "")
    code, shown, said = await run("consume", "T", "--from-start", "--count", "1", *guarded.options)
    assert (code, shown.split()[-1], said) == (0, "now", "")
    for command in (["clock"], ["delay", "ls"], ["delay", "count"], ["delay", "show", "--key", "k"]):
        code, shown, said = await run(*command, *guarded.options)
        assert (code, said) == (0, "") and shown, command
    assert "delivered" in (await run("delay", "now", "--key", "k", "--yes", *guarded.options))[1]


async def test_credentials_are_found_in_mqadmins_default_place(
    guarded: Guarded, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_HOME", str(guarded.operator.parents[1]))
    assert (await run("produce", "T", "now", "-n", guarded.namesrv, "--tls", str(guarded.tls)))[0] == 0


async def test_error_for_a_refusal_names_the_option(guarded: Guarded, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    by_tls = ["-n", guarded.namesrv, "--tls", str(guarded.tls)]
    for command in (["produce", "T", "x"], ["delay", "ls"], ["clock", "advance", "1s"]):
        code, _, said = await run(*command, *by_tls)
        assert (code, "No accessKey is configured (not signed: use --credentials FILE" in said) == (1, True), said
        code, _, said = await run(*command, *by_tls, "--credentials", str(guarded.reader))
        assert (code, f"(signed by {guarded.reader})" in said) == (1, True), said


@pytest.mark.parametrize("command", [["produce", "T", "x"], ["consume", "T"], ["delay", "ls"], ["clock"]])
async def test_error_for_plain_connection_to_tls_server_names_the_option(
    guarded: Guarded, run: Run, command: list[str]
) -> None:
    code, _, said = await run(*command, "-n", guarded.namesrv)
    assert code == 1
    assert guarded.namesrv in said and "enforces TLS" in said and "(use --tls FILE" in said
    code, _, said = await run(*command, "-n", guarded.namesrv, "--tls", str(guarded.stranger))
    assert (code, "its certificate is not trusted (tls.client.trustCertPath)" in said) == (1, True), said


async def test_tls_connection_to_plain_server(run: Run, tmp_path: Path) -> None:
    namesrv = NameServer(NamesrvConfig(listen_port=0, kv_config_path=""))
    await namesrv.start()
    try:
        options = "-n", f"127.0.0.1:{namesrv.port}", "--tls", str(written(tmp_path / "tls.properties", ""))
        code, _, said = await run("clock", *options)
        assert (code, "does not accept a TLS connection" in said) == (1, True), said
    finally:
        await namesrv.stop()


@pytest.mark.parametrize(
    ("option", "text", "named"),
    [
        ("--credentials", "accessKey: operator\n", "accessKey and secretKey are required"),
        ("--credentials", "accessKey: [\n", "not valid YAML in line 2"),
        ("--credentials", None, "No such file"),
        ("--tls", "tls.client.authServer=perhaps\n", "expected true or false"),
        ("--tls", "tls.client.authServer=true\ntls.client.trustCertPath=/no.pem\n", "tls.client.trustCertPath=/no.pem"),
        ("--tls", None, "No such file"),
    ],
)
async def test_error_for_an_invalid_file_names_it(
    run: Run, tmp_path: Path, option: str, text: str | None, named: str
) -> None:
    path = tmp_path / "file"
    if text is not None:
        path.write_text(text)
    code, _, said = await run("clock", option, str(path))
    assert (code, named in said) == (2, True), said


async def test_client_signs_requests_and_uses_tls(guarded: Guarded) -> None:
    access = Access.of_files(guarded.operator, guarded.tls)
    got: asyncio.Queue[bytes] = asyncio.Queue()
    consumer = PushConsumer(guarded.namesrv, "g", "first", access)
    async with Producer(guarded.namesrv, "p", access) as producer:
        await producer.create_topic("T", 2)
        await producer.send_batch([Message("T", b"one"), Message("T", b"two")])
        await producer.send_oneway(Message("T", b"three"))
        consumer.subscribe("T", lambda message: got.put_nowait(message.body))
        async with consumer, asyncio.timeout(PATIENCE_S):
            assert {await got.get() for _ in range(3)} == {b"one", b"two", b"three"}


def test_credentials_repr_hides_the_secret(tmp_path: Path) -> None:
    path = written(tmp_path / "tools.yml", "accessKey: operator\nsecretKey: s3cret\nsecurityToken: t0ken\n")
    credentials = read_credentials(path)
    assert (credentials.secret_key, credentials.security_token) == ("s3cret", "t0ken")
    assert "s3cret" not in repr(credentials) and "t0ken" not in repr(credentials)
