"""`pocketmq up --cluster`: a name server, masters and slaves as processes, until SIGTERM or Ctrl-C."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

from rich.table import Table

from pocketmq.cli import settings
from pocketmq.cli.cluster import BROKERS_MAX, LAYOUTS, PORT_DISTANCE, SLAVES_MAX, Layout, ProcessCluster
from pocketmq.cli.processes import Kept, NotReady
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime.command_line.commands import CommandError, complain, nearest, say, warn
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.lifecycle import StartError, StopRequest
from pocketmq.runtime.process_start import end_with_parent

_BY_LAYOUT = {
    "brokerName": "the layout names the brokers",
    "brokerId": "the layout numbers the brokers",
    "brokerRole": "the layout gives each broker its role",
    "brokerClusterName": "the cluster is named DefaultCluster",
}
_WATCH_INTERVAL_S = 0.5


def run(options: SimpleNamespace, broker_port: int) -> int:
    """Run the cluster. Returns the exit code. Raises ValueError for invalid options.

    `broker_port`: port of the first broker, 0 for free ports.
    """
    end_with_parent()
    layout = _layout(options)
    given = settings.read(options.config_file, options.set, _BY_LAYOUT)
    for warning in settings.warnings(given):
        warn(warning)
    _check_ports(given, layout)
    root = (options.store or Path("pocketmq-store")).absolute()
    cluster = ProcessCluster(
        root,
        layout,
        namesrv_port=settings.NAMESRV_PORT if options.port is None else options.port,
        broker_port=broker_port,
        settings={"mappedFileSizeCommitLog": str(settings.COMMIT_LOG_FILE_SIZE), **given},
    )
    stop_request = StopRequest()
    try:
        cluster.start()
        with _console(options.console, cluster.namesrv_address, settings.client_tls(given)) as console_line:
            _say_ready(cluster, console_line)
            _watch(cluster, stop_request)
    except (NotReady, StartError, CommandError) as failure:
        cluster.stop()
        raise CommandError(str(failure)) from failure
    return 1 if cluster.stop() else 0


@contextlib.contextmanager
def _console(port: int | None, namesrv_address: str, tls: TlsConfig | None) -> Iterator[str]:
    """Serve a console while the cluster runs, if a port is given, and yield the line that names its address.

    `tls`: of its connections; None: they are plain.
    """
    if port is None:
        yield ""
        return
    from pocketmq.cli import console_server

    console = console_server.of_development(port, namesrv_address, tls)
    console.start()
    try:
        yield console_server.ready_line(console.server, can_write=True) + "\n"
    finally:
        console.stop()


def _layout(options: SimpleNamespace) -> Layout:
    """Return the layout that the options describe. Raises ValueError."""
    for option, is_given in (
        ("--memory", options.memory),
        ("--test-clock", options.test_clock),
        ("--advertise", options.advertise),
    ):
        if is_given:
            raise ValueError(f"{option} is for a single broker, not for a cluster")
    if options.cluster:
        if options.brokers is not None or options.slaves is not None:
            raise ValueError("--cluster LAYOUT sets the number of brokers: omit --brokers and --slaves")
        if options.cluster not in LAYOUTS:
            near = nearest(options.cluster, LAYOUTS)
            raise ValueError(f"--cluster {options.cluster}: expected one of {', '.join(LAYOUTS)}{near}")
        return LAYOUTS[options.cluster]
    brokers = 1 if options.brokers is None else options.brokers
    slaves = 0 if options.slaves is None else options.slaves
    if not 1 <= brokers <= BROKERS_MAX:
        raise ValueError(f"--brokers {brokers}: expected a whole number from 1 to {BROKERS_MAX}")
    if not 0 <= slaves <= SLAVES_MAX:
        raise ValueError(f"--slaves {slaves}: expected a whole number from 0 to {SLAVES_MAX}")
    last = options.port and options.port + PORT_DISTANCE * (brokers * (slaves + 1) + 1)
    if last and last > 65535:
        raise ValueError(f"--port {options.port} leaves no ports for {brokers * (slaves + 1)} brokers")
    return Layout(brokers, slaves)


def _check_ports(given: Mapping[str, str], layout: Layout) -> None:
    """Raise ValueError if the ports from metricsPort or grpcServerPort on are not enough for all servers."""
    count = layout.brokers * (layout.slaves + 1)
    for key in ("metricsPort", "grpcServerPort"):
        first = int(given.get(key) or 0)
        if first and first + count > 65535:
            raise ValueError(
                f"{key}={first} leaves no ports for {count} brokers: each takes the next port; 0 takes free ones"
            )


def _say_ready(cluster: ProcessCluster, console_line: str) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("broker", "id", "role", "address", "process"):
        table.add_column(heading, no_wrap=True)
    for label, node in cluster.nodes.items():
        row = (label, str(node.member.broker_id), node.member.role, node.address, str(node.pid))
        table.add_row(*row)
    Printer().print(table)
    for label, server in cluster.servers.items():
        _say_kept(label, server.kept)
        if server.metrics_url is not None:
            say(f"Metrics of {label}: {server.metrics_url}/metrics")
    say(f"Stores: {cluster.folder}/BROKER/store")
    address = cluster.namesrv_address
    # One write, so that a program which waits for "boot success" finds all of it, also where output is not buffered.
    say(
        f"The cluster boot success. address={address}\n{console_line}"
        f"Try: pocketmq produce -n {address} TopicTest hello; pocketmq consume -n {address} TopicTest"
    )


def _say_kept(label: str, kept: Kept) -> None:
    """Warn about settings that were changed during an earlier run of a server."""
    applied = ", ".join(f"{key}={value}" for key, value in sorted(kept.applied.items()))
    replaced = ", ".join(f"{key}={value}" for key, value in sorted(kept.replaced.items()))
    if applied:
        warn(f"{label}: settings changed at runtime apply: {applied}")
    if replaced:
        warn(f"{label}: settings changed at runtime do not apply, because this start sets other values: {replaced}")


def _watch(cluster: ProcessCluster, stop_request: StopRequest) -> None:
    """Wait until a signal stops the cluster, and report each broker that ends before that."""
    ended: set[str] = set()
    while not stop_request.wait(_WATCH_INTERVAL_S):
        for label, node in cluster.nodes.items():
            if label not in ended and not node.is_running:
                ended.add(label)
                complain(f"{label} ended with exit code {node.exit_code}; see {node.output}")
