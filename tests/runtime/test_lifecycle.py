"""Life cycle of a server process: signals, exit codes, and one-line messages for errors that the operator can fix."""

import signal
import socket
import subprocess
import sys

import pytest

from pocketmq.runtime.lifecycle import StartError, listening
from tests.patience import PATIENCE_S

PROGRAM = """
import asyncio, os, signal, sys
from pocketmq.runtime import lifecycle, log
lifecycle.STOP_MAX_S = 0.2
class Service:
    async def start(self): {start}
    async def stop(self):
        print("stopping", flush=True)
        {stop}
log.setup()
def ready(service):
    print("ready", type(asyncio.get_running_loop()).__module__, flush=True)
sys.exit(lifecycle.run(Service(), "program", ready))
"""

CASES = {
    # name: (start, stop, signal when ready, exit code, said on stderr)
    "SIGTERM": ("pass", "pass", signal.SIGTERM, 0, ""),
    "SIGHUP": ("pass", "pass", signal.SIGHUP, 0, ""),
    "SIGHUP twice": ("pass", "os.kill(os.getpid(), signal.SIGHUP); await asyncio.sleep(0.1)", signal.SIGHUP, 0, ""),
    "SIGINT": ("pass", "pass", signal.SIGINT, 0, ""),
    "stop hangs": ("pass", "await asyncio.Event().wait()", signal.SIGTERM, 1, "program did not stop within 0.2 s"),
    "stop fails": ("pass", "raise KeyError('x')", signal.SIGTERM, 1, "program failed while it stopped"),
    "start error": (
        "raise lifecycle.StartError('no such key')",
        "pass",
        None,
        1,
        "program: error: cannot start: no such key\n",
    ),
    "os error": ("open('/no/such')", "pass", None, 1, "program: error: cannot start: /no/such: No such file"),
    "bug in start": ("1 / 0", "pass", None, 1, "ZeroDivisionError"),
    "signal in start": ("os.kill(os.getpid(), signal.SIGTERM); await asyncio.Event().wait()", "pass", None, 0, ""),
}


def run(start, stop):
    program = PROGRAM.format(start=start, stop=stop)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", CASES)
def test_exit_code_and_message(name):
    start, stop, number, exit_code, said = CASES[name]
    process = run(start, stop)
    ready = process.stdout.readline()
    if number is not None:
        assert ready.startswith("ready uvloop")
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == exit_code
    assert "stopping" in ready + out
    assert said in err
    assert ("Traceback" in err) == (name in ("stop fails", "bug in start"))


def test_second_signal_ends_the_process_at_once():
    process = run("lifecycle.STOP_MAX_S = 60", "await asyncio.Event().wait()")
    assert process.stdout.readline().startswith("ready")
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0


def bound(host, port, key):
    with listening(host, port, key), socket.socket() as other:
        other.bind((host, port))


def test_listen_error_has_address_config_key_and_reason():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"127\.0\.0\.1:{port} \(listenPort={port}\): the port is taken"):
            bound("127.0.0.1", port, "listenPort")
    with pytest.raises(StartError, match=r"192\.0\.2\.1:0 \(haListenPort=0\): .*bindAddress"):
        bound("192.0.2.1", 0, "haListenPort")
    with pytest.raises(StartError, match="ports below 1024"), listening("h", 1, "k"):
        raise PermissionError(13, "wrapped")


def test_stop_request_does_not_deadlock_with_signals_that_arrive_while_it_waits():
    """A `threading.Event` set by the handler deadlocks here within a second."""
    program = """if True:
        import os, signal, threading
        from pocketmq.runtime.lifecycle import StopRequest
        request = StopRequest()
        assert not request.wait(0)
        def send():
            for _ in range(20_000):
                os.kill(os.getpid(), signal.SIGTERM)
        sender = threading.Thread(target=send)
        sender.start()
        assert request.wait(20)
        while sender.is_alive():
            assert request.wait(0.001)
        print("stopped")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("stopped\n", 0), done.stderr
