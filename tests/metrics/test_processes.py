"""metricsPort of server processes that are started by their commands."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from pocketmq.cli.processes import start_namesrv, start_up
from tests.metrics.scraped import OPEN_METRICS, families_of, value_of
from tests.patience import PATIENCE_S


def url_of(server):
    line = r"^Metrics: (http://127\.0\.0\.1:\d+)/metrics, health: \1/health/ready$"
    (found,) = re.findall(line, server.out.read_text(), re.MULTILINE)
    return found


def get(url):
    request = urllib.request.Request(url, headers={"Accept": OPEN_METRICS})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


@pytest.fixture
def up(tmp_path):
    """`up(*arguments)` -> a running `pocketmq up --memory`."""
    running = []

    def start(*arguments):
        running.append(start_up(tmp_path, "--memory", *arguments))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            server.stop()


def test_up_has_one_metrics_port_for_both_servers_and_stops_on_sighup(up):
    server = up()
    url = url_of(server)
    assert json.loads(get(f"{url}/health/ready")) == {"status": "ready"}
    assert json.loads(get(f"{url}/health/live")) == {"status": "live"}
    families = families_of(get(f"{url}/metrics"))
    types = {sample.labels["node_type"] for sample in families["pocketmq_connections"].samples}
    assert types == {"broker", "nameserver"}
    assert value_of(families, "pocketmq_namesrv_brokers", broker_cluster="DefaultCluster") == 1
    assert "process_resident_memory_bytes" in families
    server.process.send_signal(signal.SIGHUP)
    assert server.process.wait(PATIENCE_S) == 0


def test_up_starts_without_metrics_if_metrics_port_is_empty(up):
    assert "Metrics:" not in up("--set", "metricsPort=").out.read_text()


def test_up_does_not_start_if_the_given_metrics_port_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        arguments = [sys.executable, "-m", "pocketmq", "up", "--memory", "--port", "0", "--set", f"metricsPort={port}"]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port} (metricsPort={port}): the port is taken" in ended.stderr


def test_name_server_has_a_metrics_port_and_a_json_log_file(tmp_path):
    logs = tmp_path / "logs"
    server = start_namesrv(tmp_path, settings={"metricsPort": "0", "logDirectory": str(logs), "logFormat": "json"})
    try:
        assert "pocketmq_namesrv_topics" in get(f"{url_of(server)}/metrics")
        with socket.create_connection(server.address.split(":")) as probe:
            probe.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert probe.makefile().readline() == "HTTP/1.1 400 Bad Request\n"
    finally:
        assert server.stop() == 0
    records = [json.loads(line) for line in (logs / "namesrv.log").read_text().splitlines()]
    assert [record["logger"] for record in records if "it speaks HTTP" in record["message"]] == ["remoting"]


def test_server_without_metrics_port_does_not_import_prometheus_client():
    """The import would take longer than the whole start."""
    modules = "pocketmq.broker.metrics.broker_source, pocketmq.namesrv.namesrv_source, pocketmq.metrics.monitored"
    program = f"import sys, pocketmq.cli.up, {modules}\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "pocketmq.metrics.monitored" in loaded and "prometheus_client" not in loaded
