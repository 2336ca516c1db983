"""`python -m pocketmq.spark_analytics.jvm` prints the path of the jar, for `--jars`; with `build` it builds the jar, with
`install` it copies the jar to the local Maven repository and prints its coordinates, for `--packages`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pocketmq.runtime.command_line.commands import say
from pocketmq.spark_analytics.jvm import JAR, build, coordinates, jar_path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pocketmq.spark_analytics.jvm", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    building = commands.add_parser("build", help="compile the sources; without a JDK nothing is built")
    building.add_argument("--out", type=Path, default=JAR, help="path of the jar")
    building.add_argument("--jars", type=Path, help="folder with the jars of another Spark")
    building.add_argument("--required", action="store_true", help="fail if there is no JDK")
    building.add_argument("--if-stale", action="store_true", help="do nothing if the jar is newer than the sources")
    installing = commands.add_parser("install", help="copy the jar to a Maven repository, print its coordinates")
    installing.add_argument(
        "--repository", type=Path, default=Path.home() / ".m2" / "repository", help="default ~/.m2/repository"
    )
    options = parser.parse_args(arguments)
    return _built(options) if options.command == "build" else _given(getattr(options, "repository", None))


def _given(repository: Path | None) -> int:
    """Print the path of the jar or, if it is for a repository, its coordinates."""
    jar = jar_path()
    if jar is None:
        say("the jar is not built: python -m pocketmq.spark_analytics.jvm build, which needs a JDK", to_errors=True)
        return 1
    if repository is None:
        say(jar)
    else:
        coordinates.install(jar, repository)
        say(coordinates.COORDINATES)
    return 0


def _built(options: argparse.Namespace) -> int:
    if options.if_stale and build.is_current(options.out):
        return 0
    if build.find_javac() is None and not options.required:
        say("no JDK: the data source in Java is not built, Spark will use the one in Python", to_errors=True)
        return 0
    try:
        build.build(options.out, options.jars)
    except build.BuildError as error:
        say(error, to_errors=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
