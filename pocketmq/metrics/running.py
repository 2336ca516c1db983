"""Runs a server process, with the port for metrics and health if that is configured."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pocketmq.metrics.config import MetricsConfig
from pocketmq.runtime import lifecycle

if TYPE_CHECKING:
    from pocketmq.metrics.family import Source

S = TypeVar("S", bound=lifecycle.Service)


def run(
    service: S, program: str, config: MetricsConfig, say_ready: Callable[[S, str], None],
    load_source: "Callable[[], Callable[[S], Source]]",
) -> int:  # fmt: skip
    """Run `service` until a signal stops it, and return the exit code of `lifecycle.run`.

    `say_ready` gets the started service, and the line about the port, which is empty without one. `load_source` imports the
    class with the service's metrics. Its module and those of the port are loaded only if the port is configured.
    """
    if config.metrics_port is None:
        return lifecycle.run(service, program, lambda started: say_ready(started, ""))
    from pocketmq.metrics.monitored import Monitored

    source_of = load_source()
    monitored = Monitored(service, config, lambda started: [source_of(started)])
    return lifecycle.run(monitored, program, lambda started: say_ready(started.service, started.ready_line))
