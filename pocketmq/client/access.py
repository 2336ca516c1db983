"""Access settings of a client: the credentials that sign its requests, and its TLS configuration.

access = Access(Credentials("billing", "12345678"), TlsConfig(client_auth_server=True, client_trust_cert_path="ca.pem"))
async with Producer("127.0.0.1:9876", "orders", access) as producer: ...
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.dispatch import Route
from pocketmq.remoting.signature import Credentials
from pocketmq.remoting.tls import TlsConfig, client_tls
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn


@dataclass(frozen=True)
class Access:
    """Credentials and TLS of a client. `credentials` None: requests are not signed. `tls` None: connections are plain."""

    credentials: Credentials | None = None
    tls: TlsConfig | None = None

    @classmethod
    def of_files(cls, tools_yml: Path | None, tls_properties: Path | None) -> Self:
        """Read mqadmin's files: accessKey and secretKey in YAML, tls.* in properties. Raises ValueError or StartError."""
        tls = None
        if tls_properties is not None:
            tls = TlsConfig(config_file=str(tls_properties))
            tls.read_config_file()
        return cls(None if tools_yml is None else read_credentials(tools_yml), tls)

    def client(self, table: dict[int, Route] | None = None, services: Any = None) -> RemotingClient:
        """Return a RemotingClient for the running loop. Raises StartError that names the wrong tls.* key."""
        loop = asyncio.get_running_loop()
        tls = None if self.tls is None else client_tls(self.tls)
        return RemotingClient(Turn(loop), Timers(SystemClock(), loop), table, services, tls, self.credentials)


PLAIN = Access()
"""Neither credentials nor TLS."""


def default_tools_yml() -> Path | None:
    """Return the file with a tool's credentials if none is given: $ROCKETMQ_HOME/conf/tools.yml, if it exists."""
    home = os.environ.get("ROCKETMQ_HOME")
    found = Path(home, "conf", "tools.yml") if home else None
    return found if found is not None and found.is_file() else None


def read_credentials(path: Path) -> Credentials:
    """Return the credentials in a `tools.yml`. Raises ValueError with file and problem, but without content."""
    import yaml  # imported here, because clients without such a file do not need it

    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        raise ValueError(f"{path}: not valid YAML{f' in line {mark.line + 1}' if mark else ''}") from None
    found = document if isinstance(document, dict) else {}
    access_key, secret_key, token = (found.get(name) for name in ("accessKey", "secretKey", "securityToken"))
    if not access_key or not secret_key:
        raise ValueError(f"{path}: accessKey and secretKey are required, as in mqadmin's conf/tools.yml")
    return Credentials(str(access_key), str(secret_key), None if token is None else str(token))
