"""Maven coordinates of the jar, its pom, and its installation in a repository, where `spark-submit --packages` finds it.

The jar needs no other: Spark's own are on the class path wherever it is loaded.
"""

import shutil
from pathlib import Path
from typing import Final

from pocketmq import __version__

GROUP: Final = "pocketmq"
ARTIFACT: Final = "pocketmq-spark"
VERSION: Final = __version__
COORDINATES: Final = f"{GROUP}:{ARTIFACT}:{VERSION}"
_FOLDER: Final = f"META-INF/maven/{GROUP}/{ARTIFACT}"
POM_PATH: Final = f"{_FOLDER}/pom.xml"
PROPERTIES_PATH: Final = f"{_FOLDER}/pom.properties"


def pom() -> str:
    """Return the text of the pom."""
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{GROUP}</groupId>
  <artifactId>{ARTIFACT}</artifactId>
  <version>{VERSION}</version>
  <packaging>jar</packaging>
  <name>PocketMQ data source for Spark</name>
  <description>Reads the stores of RocketMQ brokers as tables of Apache Spark.</description>
</project>
"""


def properties() -> str:
    """Return the text of pom.properties."""
    return f"groupId={GROUP}\nartifactId={ARTIFACT}\nversion={VERSION}\n"


def install(jar: Path, repository: Path) -> Path:
    """Copy the jar and its pom into a Maven repository; return the folder there."""
    folder = repository.joinpath(*GROUP.split("."), ARTIFACT, VERSION)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(jar, folder / f"{ARTIFACT}-{VERSION}.jar")
    (folder / f"{ARTIFACT}-{VERSION}.pom").write_text(pom())
    return folder
