"""Builds the image of deploy/docker without a container engine, and runs it: `python -m tests.deploy.image_root FOLDER`.

Needs root, debootstrap and the registries of Debian and PyPI; `make check-image` runs it. In place of python:3.13-slim,
which only an engine can fetch, stands a minimal Debian with its own Python 3.13. Each stage of the Dockerfile is a folder,
in which its RUN lines are executed by chroot. Then the servers run as in a container: from a read-only root, as the image's
user, in namespaces of their own for network, processes and mounts; only home and /tmp are writable.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deploy.dockerfile import DEPLOY, DOCKERFILE, Instruction, environment, stages

ROOT = DEPLOY.parent
SUITE = "trixie"
BASE_PACKAGES = "ca-certificates,python3,python3-venv,python3-pip"
FROM_HERE = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Files by which the registries are found."""
PASSED = ("PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "CARGO_HTTP_CAINFO", "SSL_CERT_FILE")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the roots are built; its base/ is used again")
    parser.add_argument("--build-arg", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--check-only", action="store_true", help="use the root that was built last")
    options = parser.parse_args()
    folder = options.folder.absolute()
    if not options.check_only:
        build(folder, environment(" ".join(options.build_arg)))
    size = sum(path.lstat().st_size for path in (folder / "stage1").rglob("*") if path.is_file() and not path.is_symlink())
    base = sum(path.lstat().st_size for path in (folder / "base").rglob("*") if path.is_file() and not path.is_symlink())
    print(f"the image adds {(size - base) / 1e6:.0f} MB to its base", flush=True)
    for script in CHECKS:
        print(f"--- {script.splitlines()[0].removeprefix('# ')}", flush=True)
        if run_contained(folder / "stage1", script) != 0:
            print("FAILED")
            return 1
    print("all checks passed")
    return 0


def build(folder: Path, given: dict[str, str]) -> None:
    """Build the roots of all stages: folder/stage0, folder/stage1."""
    base = folder / "base"
    if not (base / "usr/local/bin/python").is_symlink():
        shutil.rmtree(base, ignore_errors=True)
        command = ("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, str(base))
        subprocess.run([*command, "http://deb.debian.org/debian"], check=True)
        (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        (base / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")  # as those images have
        for path in base.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            path.unlink()  # the images of Python have no such mark
    named: dict[str, Path] = {}
    for number, stage in enumerate(stages(DOCKERFILE.read_text())):
        root = folder / f"stage{number}"
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
        for path in FROM_HERE:
            shutil.copy(path, root / path[1:])
        words = stage[0].words
        if len(words) == 3:
            named[words[2]] = root
        execute(stage[1:], root, named, given)


def execute(stage: list[Instruction], root: Path, named: dict[str, Path], given: dict[str, str]) -> None:
    """Execute the instructions of a stage in its root."""
    variables, folder = {name: os.environ[name] for name in PASSED if name in os.environ}, "/"
    for instruction in stage:
        name, flags, rest = instruction
        if name == "ARG":
            key, _, default = rest.partition("=")
            variables[key] = given.get(key, default)
        elif name == "ENV":
            variables |= environment(rest)
        elif name == "WORKDIR":
            folder = rest
            (root / folder[1:]).mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            copy(instruction, root, folder)
        elif name == "RUN":
            print(f"RUN {rest}", flush=True)
            mount = dict(part.split("=", 1) for part in flags.get("mount", "").split(",") if part)
            if mount:
                shutil.copytree(named[mount["from"]] / mount["source"][1:], root / mount["target"][1:])
            inside = f"cd {folder} && {rest}"
            command = ["env", "-i", f"PATH={PATH}", "HOME=/root", *(f"{key}={value}" for key, value in variables.items())]
            subprocess.run(["chroot", str(root), *command, "sh", "-ec", inside], check=True)
            if mount:
                shutil.rmtree(root / mount["target"][1:])


def copy(instruction: Instruction, root: Path, folder: str) -> None:
    """Copy files of the repository that git knows or has not ignored, as the build context has them."""
    *paths, target = instruction.words
    to = root / os.path.join(folder, target).lstrip("/")
    for path in paths:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", path]
        for name in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
            at = to / (os.path.relpath(name, path) if (ROOT / path).is_dir() else Path(name).name)
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, at)
            if "chmod" in instruction.flags:
                at.chmod(int(instruction.flags["chmod"], 8))


def run_contained(root: Path, script: str) -> int:
    """Run a shell script in the root as an engine would run the image, and return its exit code."""
    final = stages(DOCKERFILE.read_text())[-1]
    variables = {key: value for step in final if step.name == "ENV" for key, value in environment(step.rest).items()}
    user = next(step.rest for step in final if step.name == "USER")
    home = variables["HOME"]
    inside = " ".join(
        ["env", "-i", f"PATH={PATH}", *(shlex.quote(f"{key}={value}") for key, value in variables.items()), "sh", "-euc"]
    )
    outside = f"""
ip link set lo up
mount --bind {root} {root}
mount -t tmpfs tmpfs {root}{home} -o uid=10001,gid=10001
mount -t tmpfs tmpfs {root}/tmp -o mode=1777
mount -t proc proc {root}/proc
mount -t devtmpfs devtmpfs {root}/dev 2>/dev/null || mount --bind /dev {root}/dev
mount -o remount,bind,ro {root}
exec chroot --userspec={user} {root} {inside} {shlex.quote(f"cd {home}; {script}")}
"""
    command = ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "sh", "-euc", outside]
    return subprocess.run(command, timeout=120).returncode


START = """
until_well() { for _ in $(seq 150); do healthcheck "$1" >/tmp/health && return; sleep 0.2; done; cat /tmp/health; return 1; }
"""
CHECKS = (
    f"""# pocketmq up, the image's command, in a read-only root
{START}
test "$(id -u)" = 10001
if touch /var/tmp/x 2>/dev/null || healthcheck live; then exit 1; fi
entrypoint pocketmq up --advertise 127.0.0.1 & server=$!
until_well ready
pocketmq produce TopicTest hello
pocketmq consume TopicTest --from-start --count 1 | grep hello
python -c "import socket; socket.create_connection(('127.0.0.1', 8081)).close()"
kill $server; wait $server
""",
    f"""# name server, broker and proxy, each by the entry point
{START}
entrypoint mqnamesrv & namesrv=$!
until_well ready
grep -q bindAddress=0.0.0.0 mqnamesrv.conf
printf 'brokerName=from-file\\nautoCreateTopicEnable=false' > /tmp/broker.conf
POCKETMQ_CONFIG=/tmp/broker.conf entrypoint mqbroker -n 127.0.0.1:9876 brokerName=broker-a brokerIP1=127.0.0.1 \\
    metricsPort=5558 & broker=$!
entrypoint mqproxy -n 127.0.0.1:9876 & proxy=$!
until_well 8081
for _ in $(seq 50); do mqadmin clusterList -n 127.0.0.1:9876 | grep broker-a && break; sleep 0.2; done
mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t Orders
pocketmq produce Orders hello
kill $proxy $broker; wait $proxy; wait $broker
pocketmq store verify store | grep valid
kill $namesrv; wait $namesrv
""",
    f"""# the console, beside servers
{START}
entrypoint pocketmq up --memory & server=$!
until_well ready
entrypoint pocketmq console -n 127.0.0.1:9876 & console=$!
until_well console
python -c "import urllib.request as r; assert b'broker' in r.urlopen('http://127.0.0.1:8088/').read()"
kill $console; wait $console
kill $server; wait $server
""",
    """# the compiled lane, where it was asked for
python -c "from pocketmq.lane import compiled_lane; print(compiled_lane()[1])"
""",
)


if __name__ == "__main__":
    sys.exit(main())
