"""Builds a release into dist/: `make release`, or `make release RELEASE_ARGS=--snapshot` to try it at any commit.

1. The changelog must have a section `## [VERSION] - YYYY-MM-DD`, and the work tree no changes.
2. The committed files are unpacked into two folders, and each builds sdist and wheel, with the commit's time as
   SOURCE_DATE_EPOCH: both must give the same bytes.
3. `twine check --strict` reads them; a file lists their software (CycloneDX: Python's packages as installed with the extra
   grpc, and the crates of the compiled lane), and SHA256SUMS their hashes.

It runs in an environment with requirements.txt; the jar of the data source is built by --spark-python, which has PySpark.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
SECTION = r"^## \[{}\] - \d{{4}}-\d{{2}}-\d{{2}}$"
"""A version's heading, by keepachangelog."""
IN_SDIST = (
    "pyproject.toml", "README.md", "pocketmq/lane/crate/Cargo.toml", "pocketmq/lane/crate/Cargo.lock",
    "pocketmq/lane/crate/src/lib.rs",
)  # fmt: skip
IN_WHEEL = ("pocketmq/py.typed", "pocketmq/proxy/proto/*.proto", "pocketmq/spark_analytics/commands/page.html")
COMPILED = ("pocketmq/lane/_lane*.so", "pocketmq/spark_analytics/jvm/*.jar")


class ReleaseError(Exception):
    """The release cannot be made."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build a release into dist/.")
    parser.add_argument("--snapshot", action="store_true", help="do not check changelog and work tree")
    parser.add_argument("--spark-python", default=str(ROOT / ".venv/bin/python"), help="a Python with PySpark")
    options = parser.parse_args()
    try:
        version = version_of((ROOT / "pocketmq/__init__.py").read_text())
        if not options.snapshot:
            check_changelog((ROOT / "CHANGELOG.md").read_text(), version)
            if changed := output("git", "status", "--porcelain"):
                raise ReleaseError(f"the work tree has changes:\n{changed}")
        commit = output("git", "rev-parse", "HEAD")
        shutil.rmtree(DIST, ignore_errors=True)
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            built = [built_in(Path(folder), commit, options.spark_python, options.snapshot) for folder in (first, second)]
            compare(*built)
            check_contents(built[0], is_complete=not options.snapshot)
            DIST.mkdir()
            files = [Path(shutil.copy(path, DIST)) for path in built[0]]
        run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
        files.append(bill_of_materials(next(path for path in files if path.suffix == ".whl"), version))
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"release: error: {error}", file=sys.stderr)
        return 1
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums)
    print(f"{sums}built twice with the same bytes; in {DIST}")
    return 0


def version_of(module: str) -> str:
    """Return the version that the package's module declares."""
    found = re.search(r'^__version__ = "(.+)"$', module, re.MULTILINE)
    if found is None:
        raise ReleaseError("pocketmq/__init__.py has no __version__")
    return found[1]


def check_changelog(text: str, version: str) -> None:
    """Raise ReleaseError unless the first dated section is the version's, and nothing is left under Unreleased."""
    if re.search(SECTION.format(re.escape(version)), text, re.MULTILINE) is None:
        raise ReleaseError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")
    headings = re.findall(r"^## \[(.+?)\](?: - .+)?$", text, re.MULTILINE)
    newest = [heading for heading in headings if heading != "Unreleased"][0]
    if newest != version:
        raise ReleaseError(f"CHANGELOG.md: the newest section is {newest}, the version is {version}")
    unreleased = re.search(r"^## \[Unreleased\]$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    if unreleased and unreleased[1].strip():
        raise ReleaseError("CHANGELOG.md: changes are left under Unreleased")


def built_in(folder: Path, commit: str, spark_python: str, is_snapshot: bool) -> list[Path]:
    """Unpack the files of a commit into a folder, build there, and return sdist and wheel."""
    source, to = folder / "source", folder / "dist"
    source.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    # Paths of this machine must not be in the compiled lane.
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    epoch = output("git", "log", "-1", "--format=%ct", commit)
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": epoch,
        "RUSTFLAGS": f"--remap-path-prefix={source}=. --remap-path-prefix={home}=cargo",
    }
    environment.pop("PYTHONPATH", None)
    jar = [spark_python, "-m", "pocketmq.spark_analytics.jvm", "build"] + ([] if is_snapshot else ["--required"])
    run(*jar, cwd=source, env=environment)
    run(sys.executable, "-m", "build", "--outdir", str(to), str(source), cwd=folder, env=environment)
    (sdist,), (wheel,) = to.glob("*.tar.gz"), to.glob("*.whl")
    repack(sdist, int(epoch))
    return [sdist, wheel]


def repack(sdist: Path, epoch: int) -> None:
    """Write the archive again without what differs between builds: times, owners, and the order of its files."""
    contents = {}
    with tarfile.open(sdist) as old:
        members = sorted(old.getmembers(), key=lambda member: member.name)
        for member in members:
            file = old.extractfile(member)
            contents[member.name] = file.read() if file else b""
    with (
        sdist.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=epoch, fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in members:
            kept = tarfile.TarInfo(member.name)
            kept.type, kept.size, kept.mtime = member.type, member.size, epoch
            kept.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(kept, io.BytesIO(contents[member.name]))


def compare(first: list[Path], second: list[Path]) -> None:
    """Raise ReleaseError unless both builds gave the same files."""
    for one, other in zip(first, second, strict=True):
        if (one.name, digest(one)) != (other.name, digest(other)):
            raise ReleaseError(f"two builds differ: {one.name} {digest(one)}, {other.name} {digest(other)}")


def check_contents(files: list[Path], is_complete: bool) -> None:
    """Raise ReleaseError if sdist or wheel lack what they are for. `is_complete`: also what cargo and a JDK build."""
    sdist, wheel = files
    with tarfile.open(sdist) as tar:
        in_sdist = {name.partition("/")[2] for name in tar.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    lacking = [f"{sdist.name} has no {name}" for name in IN_SDIST if name not in in_sdist]
    for pattern in IN_WHEEL + (COMPILED if is_complete else ()):
        if not any(fnmatch(name, pattern) for name in in_wheel):
            lacking.append(f"{wheel.name} has no {pattern}")
    if lacking:
        raise ReleaseError("\n".join(lacking))


def bill_of_materials(wheel: Path, version: str) -> Path:
    """Install the wheel into an environment of its own, and write a list of what is installed and compiled in."""
    path = DIST / f"pocketmq-{version}.cdx.json"
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        python = f"{folder}/bin/python"
        run(sys.executable, "-m", "pip", "--python", python, "install", "-q", f"{wheel}[grpc]")
        tool = ["-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml")]
        run(sys.executable, *tool, "--mc-type", "application", "--of", "JSON", "-o", str(path), python)
    bill = json.loads(path.read_text())
    lock = tomllib.loads((ROOT / "pocketmq/lane/crate/Cargo.lock").read_text())
    bill["components"] += [crate(package) for package in lock["package"] if "source" in package]
    path.write_text(json.dumps(bill, indent=2) + "\n")
    check_bill(path)
    return path


def crate(package: dict[str, str]) -> dict[str, object]:
    """Return a crate of Cargo.lock as a component of CycloneDX."""
    purl = f"pkg:cargo/{package['name']}@{package['version']}"
    component: dict[str, object] = {
        "type": "library",
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
    }
    return component | {"purl": purl, "hashes": [{"alg": "SHA-256", "content": package["checksum"]}]}


def check_bill(path: Path) -> None:
    """Raise ReleaseError unless the file is valid by CycloneDX's schema."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = path.read_text()
    schema = SchemaVersion.from_version(json.loads(text)["specVersion"])
    if (problem := JsonStrictValidator(schema).validate_str(text)) is not None:
        raise ReleaseError(f"{path.name}: {problem}")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Run a command. Raises CalledProcessError."""
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, env=env, check=True, stdin=subprocess.DEVNULL)


def output(*command: str) -> str:
    """Return what a command prints. Raises CalledProcessError."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
