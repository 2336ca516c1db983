"""Servers with a gRPC port: PocketMQ's broker and proxy, and Apache's proxy, the reference."""

import re
import sys
import time
from pathlib import Path

from tests.interop.servers import Apache, Cluster, Flavour, Pocketmq, ServerProcess, start_proxy
from tests.patience import PATIENCE_S

BROKER = {
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 60,
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
}
"""Settings of the broker behind a front. It checks open transactions early."""
OP_AT_ONCE = {"transactionOpBatchInterval": 100}
"""Setting of Apache's 5.5.0 broker. It otherwise notes a decision up to 3 s later, and checks the transaction once more."""
APACHE = "apache"
APACHE_EXPIRY_MS = 30_000
"""Time without a heartbeat after which Apache's proxy takes a client for gone, instead of two minutes. The end of a client's
connection does not count there."""
BROKERS = {
    APACHE: "pocketmq", "apache-all": "5.5.0", "broker": "pocketmq",
    "mqproxy": "pocketmq", "mqproxy-4.9.4": "4.9.4", "mqproxy-5.5.0": "5.5.0",
}  # fmt: skip
"""Front -> name server and broker behind it."""
_PORT = re.compile(r"gRPC: (\S+:\d+)")
_ADDRESS = re.compile(r"address=(\S+:\d+)")


def serves(name: str, case: str) -> bool:
    """Return whether a front can do a case.

    Broker 4.9.4 has no pop, so that it serves no consumers. Apache's proxy does not register consumers with brokers, so that
    an administrator cannot ask them there.
    """
    if name == "mqproxy-4.9.4":
        return case == "send"
    return case != "send" and (case != "ask" or not name.startswith(APACHE))


class Front:
    """A gRPC port with the servers behind it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        behind = BROKERS[name]
        flavour: Flavour = Pocketmq() if behind == "pocketmq" else Apache(behind)
        more = {"broker": {"grpcServerPort": 0}}.get(name, OP_AT_ONCE if behind == "5.5.0" else {})
        self.cluster = Cluster(folder / "servers", flavour, **BROKER, **more)
        self._proxy: ServerProcess | None = None
        try:
            self.cluster.start_broker()
            self.endpoint = self._start(folder)
        except BaseException:
            self.close()
            raise

    def _start(self, folder: Path) -> str:
        namesrv = self.cluster.namesrv_address
        if self.name == "broker":
            assert self.cluster.broker
            return _printed(self.cluster.broker.log)
        if self.name.startswith(APACHE):
            self._proxy, endpoint = start_proxy(folder / "proxy", namesrv, channelExpiredTimeout=APACHE_EXPIRY_MS)
            return endpoint
        command = [sys.executable, "-m", "pocketmq.proxy", "-n", namesrv, "--port", "0"]
        self._proxy = ServerProcess(command, folder / "proxy.log")
        line = self._proxy.wait_ready()
        found = _ADDRESS.search(line)
        assert found, line
        return found.group(1)

    def close(self) -> None:
        if self._proxy:
            self._proxy.kill()  # Apache's takes 30 s to stop
        self.cluster.close()


def _printed(log: Path) -> str:
    """Return the address of the gRPC port that the broker prints."""
    end = time.monotonic() + PATIENCE_S
    while not (found := _PORT.search(log.read_text(errors="replace"))):
        assert time.monotonic() < end, f"no gRPC port printed:\n{log.read_text(errors='replace')[-4000:]}"
        time.sleep(0.01)
    return found.group(1)
