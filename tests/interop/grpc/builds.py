"""Commands of the drivers of the official gRPC clients, each built once into the cache.

A driver's home is the folder under which its client writes its log: the environment's HOME, which a JVM does not heed.
"""

from pathlib import Path

from tests.interop import toolchain
from tests.interop.servers import JAVA_OPTIONS

HERE = Path(__file__).parent


def java(home: Path) -> list[str | Path]:
    """Return the command of the driver in Java."""
    sources = [HERE / "java" / "Driver.java"]
    pom = HERE / "java" / "pom.xml"
    name = f"grpc-{toolchain.digest([pom])}"
    libraries = toolchain.jars_of(pom, name)
    classes = toolchain.compiled(name, libraries, sources, "gRPC driver")
    return ["java", *JAVA_OPTIONS, "-Xmx256m", f"-Duser.home={home}", "-cp", f"{classes}:{libraries}/*", "Driver"]


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
