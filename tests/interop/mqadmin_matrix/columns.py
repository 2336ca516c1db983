"""The columns of the table: a tool and the servers that it is used at."""

import contextlib
import io
import json
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

from pocketmq.admin.tool import main
from tests.interop.mqadmin import Mqadmin
from tests.interop.mqadmin_matrix.case import Case, Outcome, facts
from tests.interop.mqadmin_matrix.payments import Payments
from tests.interop.servers import CLUSTER_NAME, Apache, Cluster, Flavour, Pocketmq, auth_settings
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

ADMIN = ("matrixAdmin", "matrixSecret")
RULES = f"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: {ADMIN[0]}
    secretKey: {ADMIN[1]}
    admin: true
"""
TOOLS_YML = f"accessKey: {ADMIN[0]}\nsecretKey: {ADMIN[1]}\n"
TOPIC, GROUP, QUEUES, PER_QUEUE = "Orders", "Billing", 2, 3


class Tool(Protocol):
    """Runs commands; returns exit code and all that was printed."""

    def run(self, namesrv_address: str, words: list[str], signed: bool) -> tuple[int, str]: ...


class ApachesTool:
    """Apache's mqadmin in one JVM."""

    def __init__(self, shell: Mqadmin) -> None:
        self._shell = shell

    def run(self, namesrv_address: str, words: list[str], signed: bool) -> tuple[int, str]:
        tools_yml = self._shell.home / "conf" / "tools.yml"
        tools_yml.write_text(TOOLS_YML if signed else "")
        return self._shell.run_for_exit_code(namesrv_address, *words)


class OurTool:
    """Our mqadmin in this process."""

    def __init__(self, folder: Path) -> None:
        self._signed = folder / "tools.yml"
        self._files = folder / "written"
        self._signed.write_text(TOOLS_YML)

    def run(self, namesrv_address: str, words: list[str], signed: bool) -> tuple[int, str]:
        credentials = ["--credentials", str(self._signed)] if signed and words[0] != "help" else []
        command = (
            [*words, *credentials] if words[0] == "help" else [words[0], "-n", namesrv_address, *words[1:], *credentials]
        )
        printed = io.StringIO()
        self._files.mkdir(exist_ok=True)
        home = os.environ.pop("ROCKETMQ_HOME", None)
        try:
            # consumerStatus writes files to the current folder.
            with contextlib.chdir(self._files), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                main(command)
        except SystemExit as end:
            return int(end.code or 0), printed.getvalue()
        finally:
            if home is not None:
                os.environ["ROCKETMQ_HOME"] = home


class AuthColumn:
    """A tool at a cluster of its own, whose broker has users and ACLs of 5.x."""

    def __init__(self, folder: Path, flavour: Flavour) -> None:
        (folder / "conf" / "acl").mkdir(parents=True)
        self.folder = folder
        self.cluster = self._cluster(flavour)
        self.cluster.start_broker()

    def _cluster(self, flavour: Flavour) -> Cluster:
        user = json.dumps({"username": ADMIN[0], "password": ADMIN[1]})
        return Cluster(self.folder, flavour, initAuthenticationUser=user, **auth_settings(self.folder))

    @property
    def values(self) -> Mapping[str, str]:
        """The values of the placeholders of a case."""
        return {"broker": self.cluster.broker_address, "cluster": CLUSTER_NAME}

    def outcomes(self, tool: Tool, cases: Iterable[Case], is_apache: bool) -> list[Outcome]:
        """Run all cases one after the other."""
        return [self._outcome(tool, case, is_apache) for case in cases]

    def _outcome(self, tool: Tool, case: Case, is_apache: bool) -> Outcome:
        expected = case.at_apache if is_apache and case.at_apache is not None else case.shows
        deadline = time.monotonic() + PATIENCE_S
        while True:
            exit_code, text = tool.run(self.cluster.namesrv_address, case.words(self.values), case.signed)
            outcome = Outcome(exit_code, facts(text, case.hides, self.values))
            if not case.settles or not outcome.missing(expected) or time.monotonic() > deadline:
                return outcome
            time.sleep(0.1)

    def close(self) -> None:
        self.cluster.close()


class Column(AuthColumn):
    """A tool at a cluster of its own, which has access rules of 4.9, a topic with messages and a group that consumes it."""

    def __init__(self, folder: Path, flavour: Flavour) -> None:
        super().__init__(folder, flavour)
        self._consumer = Connection(self.cluster.broker_address, signed_as=ADMIN)
        self._prepare()
        self._payments = Payments(self._consumer, self.cluster.broker_address, self.cluster.broker_name, ADMIN)

    def _cluster(self, flavour: Flavour) -> Cluster:
        (self.folder / "conf" / "plain_acl.yml").write_text(RULES)
        return Cluster(self.folder, flavour, aclEnable="true", rocketmqHome=self.folder)

    def _prepare(self) -> None:
        consumer = self._consumer
        consumer.create_topic(TOPIC, QUEUES)
        consumer.subscribe(GROUP, TOPIC)
        for queue_id in range(QUEUES):
            for number in range(PER_QUEUE):
                consumer.send(TOPIC, queue_id, b"order %d" % number, {"KEYS": f"order-{queue_id}-{number}", "TAGS": "paid"})
            consumer.commit(GROUP, TOPIC, queue_id, PER_QUEUE - 1)

    @property
    def values(self) -> Mapping[str, str]:
        return {
            **super().values,
            "namesrv": self.cluster.namesrv_address,
            "name": self.cluster.broker_name,
            "folder": str(self.folder / "files"),
            **self._payments.values,
        }

    def close(self) -> None:
        self._payments.close()
        self._consumer.close()
        super().close()


class Table(NamedTuple):
    """The outcomes of all cases in the three columns, in the order of the cases."""

    apaches_tool: list[Outcome]
    ours: list[Outcome]
    ours_at_apache: list[Outcome]
    folder: Path
    """The folder with the files of each column, `<column>/files`."""


def run_all(folder: Path, cases: list[Case], column: type[AuthColumn] = Column, version: str = "4.9.4") -> Table:
    """Start the servers of all columns and run all cases in each; `version` is that of Apache's tool and servers."""
    # Servers start side by side; the tools run one after the other, because ours prints to this process's output.
    flavours: dict[str, Flavour] = {"apaches_tool": Pocketmq(), "ours": Pocketmq(), "ours_at_apache": Apache(version)}
    with ThreadPoolExecutor() as pool:
        started = {name: pool.submit(column, folder / name, flavour) for name, flavour in flavours.items()}
        shell = pool.submit(_shell, folder / "shell", version)
    columns: dict[str, AuthColumn] = {}
    try:
        columns = {name: future.result() for name, future in started.items()}
        with ThreadPoolExecutor(1) as pool:
            apaches = pool.submit(columns["apaches_tool"].outcomes, ApachesTool(shell.result()), cases, False)
            our_tool = OurTool(folder)
            ours = columns["ours"].outcomes(our_tool, cases, False)
            ours_at_apache = columns["ours_at_apache"].outcomes(our_tool, cases, True)
            return Table(apaches.result(), ours, ours_at_apache, folder)
    finally:
        for one in columns.values():
            one.close()
        if shell.exception() is None:
            shell.result().close()


def _shell(folder: Path, version: str) -> Mqadmin:
    folder.mkdir(parents=True)
    return Mqadmin(folder, version)
