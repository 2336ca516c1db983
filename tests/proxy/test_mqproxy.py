"""The command `mqproxy`: its options and config file, start and stop; and a broker without the library for gRPC."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
import pytest

from pocketmq.proxy.__main__ import main
from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.patience import PATIENCE_S
from tests.support.commands import call

COMMAND = [sys.executable, "-m", "pocketmq.proxy"]
WITHOUT_PROTOBUF = """\
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "google":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


def ended(*command, **how):
    """Run a command to its end; return exit code and what it printed as errors."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, **how)
    return done.returncode, done.stderr


def refusal(*options):
    refused = call(main, *options)
    printed = refused.stderr
    assert refused.returncode == 2, printed
    assert "Traceback" not in printed
    return printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nothing"], "--nothing"),
        (["--port", "70000"], "--port"),
        (["-pm", "both"], "--proxyMode"),
        (["-n", "no address"], "-n"),
    ],
)
def test_wrong_options_are_refused(options, said):
    assert said in refusal(*options)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rmq-proxy.json", "{", "not valid JSON"),
        ("rmq-proxy.json", "[]", "expected a JSON object"),
        ("rmq-proxy.json", '{"grpcServerPort": "many"}', "grpcServerPort"),
        ("proxy.conf", "maxMessageSize=-1\n", "maxMessageSize"),
        ("rmq-proxy.json", '{"proxyMode": "LOCAL"}', "set grpcServerPort in the broker's config"),
    ],
)
def test_a_wrong_config_file_is_refused_with_its_problem(tmp_path, name, text, said):
    file = tmp_path / name
    file.write_text(text)
    assert said in refusal("-pc", str(file))


def test_a_config_file_that_is_not_there_and_local_mode_are_refused(tmp_path):
    assert "none.json" in refusal("-pc", str(tmp_path / "none.json"))
    assert "grpcServerPort" in refusal("-pm", "local")


def test_it_serves_until_a_signal_with_a_config_file_of_apache(tmp_path):
    file = tmp_path / "rmq-proxy.json"
    keys = {"rocketMQClusterName": "DefaultCluster", "namesrvAddr": "127.0.0.1:1", "useEndpointPortFromRequest": True}
    file.write_text(json.dumps({**keys, "maxMessageSize": 1000, "grpcServerPort": 8081, "metricsPort": 0, "unheardOf": 1}))
    process = subprocess.Popen(
        [*COMMAND, "-pc", str(file), "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        monitored, line = process.stdout.readline(), process.stdout.readline()
        url = monitored.split()[1].removesuffix("/metrics,")
        with urllib.request.urlopen(f"{url}/health/ready", timeout=PATIENCE_S) as ready:
            assert json.loads(ready.read()) == {"status": "ready"}
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as metrics:
            assert 'pocketmq_grpc_clients{cluster="",node_id="127.0.0.1:' in metrics.read().decode()
        assert line.startswith("The proxy boot success. address=127.0.0.1:")
        with grpc.insecure_channel(line.strip().rpartition("=")[2]) as channel:
            rpc = channel.unary_unary(
                "/apache.rocketmq.v2.MessagingService/Heartbeat",
                pb.HeartbeatRequest.SerializeToString,
                pb.HeartbeatResponse.FromString,
            )
            answer = rpc(pb.HeartbeatRequest(), metadata=[("x-mq-client-id", "c")], timeout=PATIENCE_S)
        assert answer.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "unheardOf" in errors
    assert "useEndpointPortFromRequest" in errors
    assert "Traceback" not in errors


def python(program, folder):
    """Run a program in a folder of its own; return exit code and what it printed as errors."""
    settings = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return ended(sys.executable, "-c", program, cwd=folder, env=settings)


def test_a_broker_s_modules_do_not_import_the_library_for_grpc(tmp_path):
    program = "import sys, pocketmq.broker.broker, pocketmq.broker.__main__\nsys.exit('google.protobuf' in sys.modules)"
    assert python(program, tmp_path) == (0, "")


def test_a_broker_without_the_library_says_how_to_install_it(tmp_path):
    program = f"{WITHOUT_PROTOBUF}\nfrom pocketmq.broker.__main__ import main\nmain(['-c', 'broker.conf', '--port', '0'])"
    (tmp_path / "broker.conf").write_text(f"grpcServerPort=0\nstorePathRootDir={tmp_path}/store\n")
    code, printed = python(program, tmp_path)
    assert code == 1
    assert "grpcServerPort: protobuf is not installed: pip install 'pocketmq[grpc]'" in printed
    assert "Traceback" not in printed


def test_mqproxy_without_the_library_says_how_to_install_it(tmp_path):
    code, printed = python(f"{WITHOUT_PROTOBUF}\nfrom pocketmq.proxy.__main__ import main\nmain([])", tmp_path)
    assert (code, printed) == (1, "mqproxy: error: protobuf is not installed: pip install 'pocketmq[grpc]'\n")
