"""Commands of the drivers of the official gRPC clients, each built once into the cache.

A driver's home is the folder under which its client writes its log: the environment's HOME, which a JVM does not heed.
"""

import shutil
from pathlib import Path

from tests.interop import toolchain
from tests.interop.grpc.fronts import Front
from tests.interop.servers import JAVA_OPTIONS
from tests.interop.wire import Connection

HERE = Path(__file__).parent


def java(home: Path) -> list[str | Path]:
    """Return the command of the driver in Java."""
    sources = [HERE / "java" / "Driver.java"]
    pom = HERE / "java" / "pom.xml"
    name = f"grpc-{toolchain.digest([pom])}"
    libraries = toolchain.jars_of(pom, name)
    class_path = f"{toolchain.compiled(name, libraries, sources, 'gRPC driver')}:{libraries}/*"

    def command(home: Path, classes: str) -> list[str | Path]:
        return ["java", *JAVA_OPTIONS, "-Xmx256m", classes, f"-Duser.home={home}", "-cp", class_path, "Driver"]

    def record(target: Path) -> None:
        front = Front("broker", target / "home")
        try:
            with Connection(front.cluster.broker_address) as connection:
                connection.create_topic("T", 1)
            toolchain.run(*command(target / "home", toolchain.recording(target)), front.endpoint, "push", "T", "G")
        finally:
            front.close()
        shutil.rmtree(target / "home")

    return command(home, toolchain.class_archive(name, class_path, record))


def go(home: Path) -> list[str | Path]:
    """Return the command of the driver in Go."""
    toolchain.require_go()
    folder = HERE / "go"
    sources = sorted(folder.iterdir())

    def build(target: Path) -> None:
        toolchain.run("go", "build", "-trimpath", "-o", target / "driver", ".", cwd=folder)

    built = toolchain.made_once(
        toolchain.CACHE / "interop" / f"grpc-go-{toolchain.digest(sources)}", "gRPC driver in Go", build
    )
    return [built / "driver"]
