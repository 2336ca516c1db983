"""PocketMQ in a container, for tests in Python: `pip install 'pocketmq[testcontainers]'`.

    with PocketMQContainer() as mq:
        mq.create_topic("Orders", type="DELAY")
        shop = Shop(mq.namesrv_address)                any RocketMQ client; mq.grpc_address for gRPC clients
        mq.advance("30m")

The image is that of deploy/docker. Clients get the broker's address from the name server, so the broker must know the
port at which the container engine publishes it: that port is chosen before the start.
"""

import re
import socket
from collections.abc import Mapping
from typing import Any, Final

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from pocketmq.testing.requests import BrokerRequests
from pocketmq.testing.tcp_proxy import free_port

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
GRPC_PORT: Final = 8081
METRICS_PORT: Final = 5557
_READY: Final = re.compile(r"^The broker\[.*\] boot success", re.MULTILINE)


class PocketMQContainer(DockerContainer, BrokerRequests):  # type: ignore[misc]  # testcontainers may not be installed
    """A container with a name server and a broker whose store is in memory."""

    def __init__(
        self,
        image: str = "pocketmq",
        *,
        test_clock: bool = True,
        settings: Mapping[str, str] | None = None,
        broker_port: int | None = None,
        **options: Any,
    ) -> None:
        """`test_clock`: message time stands still until `advance`. `settings`: keys of broker and name server.

        `broker_port`: the broker's port on this machine; None: a free one. `options`: those of DockerContainer.
        """
        DockerContainer.__init__(self, image, **options)
        BrokerRequests.__init__(self)
        self.broker_port = free_port("") if broker_port is None else broker_port
        self._test_clock = test_clock
        self._settings = settings or {}
        self.with_exposed_ports(NAMESRV_PORT, GRPC_PORT, METRICS_PORT)
        self.with_bind_ports(BROKER_PORT, self.broker_port)
        self.waiting_for(LogMessageWaitStrategy(_READY))

    def _configure(self) -> None:
        """Set the command, just before the start. In the container the engine's name may be unknown, unlike its address."""
        address = f"{socket.gethostbyname(self.get_docker_client().host())}:{self.broker_port}"
        words = ["pocketmq", "up", "--memory", "--advertise", address, "--set", "metricsHost=0.0.0.0"]
        words += ["--test-clock"] if self._test_clock else []
        for key, value in self._settings.items():
            words += ["--set", f"{key}={value}"]
        self.with_command(words)

    def stop(self, *arguments: Any, **options: Any) -> None:
        """Remove the container; its messages are lost."""
        self._end_requests()
        super().stop(*arguments, **options)

    @property
    def namesrv_address(self) -> str:
        return self._address(NAMESRV_PORT)

    @property
    def grpc_address(self) -> str:
        """Address for gRPC clients."""
        return self._address(GRPC_PORT)

    @property
    def metrics_url(self) -> str:
        """Address of the page of metrics."""
        return f"http://{self._address(METRICS_PORT)}/metrics"

    def _address(self, port: int) -> str:
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(port)}"
