"""Installs the official gRPC clients for Python, from PyPI, and for Node, from npm, into the cache of the toolchain."""

import shutil
import sys
from pathlib import Path

from tests.interop import toolchain

HERE = Path(__file__).parent


def python_packages() -> Path:
    """Return the folder with the client for Python and those of its dependencies that the tests themselves lack."""
    requirements = HERE / "python" / "requirements.txt"

    def install(target: Path) -> None:
        options = ("--no-deps", "--only-binary=:all:", "--target", target, "-r", requirements)
        toolchain.run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *options)

    return toolchain.made_once(_folder("python", requirements), "gRPC client for Python", install)


def node_modules() -> Path:
    """Return the folder with the client for Node and its dependencies."""
    if missing := [tool for tool in ("node", "npm") if shutil.which(tool) is None]:
        raise toolchain.ToolchainMissing(f"not found: {', '.join(missing)} (install Node 16.19 or later, with npm)")
    locked = [HERE / "node" / name for name in ("package.json", "package-lock.json")]

    def install(target: Path) -> None:
        for path in locked:
            shutil.copy(path, target)
        toolchain.run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=target)

    return toolchain.made_once(_folder("node", *locked), "gRPC client for Node", install) / "node_modules"


def _folder(name: str, *sources: Path) -> Path:
    return toolchain.CACHE / "interop" / f"grpc-{name}-{toolchain.digest(list(sources))}"
