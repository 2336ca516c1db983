"""Test certificate authority, which uses the command openssl."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    """Paths of a certificate and its key, in PEM (PKCS#8)."""

    cert: str
    key: str


class Authority:
    """Authority that signs certificates in `folder`. Skips the test if openssl is not installed."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("not found: openssl")
        self._folder = folder
        self.cert, self._key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
        self._openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.cert, "-days", "30", "-subj", f"/CN={name}"
        )

    def certificate(self, name: str, password: str | None = None) -> Certificate:
        """Create a certificate signed by this authority; with a password, its key is encrypted."""
        made = Certificate(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        request = str(self._folder / f"{name}.csr")
        self._openssl("req", *_NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key, "-CAcreateserial",
                      "-out", made.cert, "-days", "30")  # fmt: skip
        if password is not None:
            plain = Path(made.key).rename(f"{made.key}.plain")
            self._openssl("pkcs8", "-topk8", "-in", str(plain), "-out", made.key, "-passout", f"pass:{password}")
        return made

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
