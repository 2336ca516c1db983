"""The daemon of Python workers, started as Spark does for Unix sockets."""

import os
import socket
import subprocess
import sys
import tempfile
import time

from tests.patience import PATIENCE_S


def test_released_worker_ends_without_traceback() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a Unix socket's path is limited, and pytest's folders have long names
        run_daemon(folder)


def run_daemon(folder: str) -> None:
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "pocketmq.spark_analytics.worker_daemon", "pyspark.worker"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        size = int.from_bytes(daemon.stdout.read(4), "big")
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        connection.connect(daemon.stdout.read(size))
        worker_pid = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        connection.close()
        deadline = time.monotonic() + PATIENCE_S
        while is_there(worker_pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        # Closing its stdin ends the daemon.
        _, errors = daemon.communicate(timeout=PATIENCE_S)
    assert not is_there(worker_pid)
    assert errors == b""


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
