"""Reads the instructions of a Dockerfile, as far as ours uses them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
_FLAG = re.compile(r"--([a-z-]+)=(\S+)\s+")


class Instruction(NamedTuple):
    """One instruction: its name in capitals, its flags, and the rest of its line."""

    name: str
    flags: dict[str, str]
    rest: str

    @property
    def words(self) -> list[str]:
        """The rest, as a JSON array or as words."""
        return json.loads(self.rest) if self.rest.startswith("[") else self.rest.split()


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions; continued lines are joined, comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.partition(" ")
        flags = {}
        rest = rest.strip()
        while name != "HEALTHCHECK" and (found := _FLAG.match(rest)):
            flags[found[1]] = found[2]
            rest = rest[found.end() :]
        yield Instruction(name, flags, rest)


def stages(text: str) -> list[list[Instruction]]:
    """Return the instructions of each stage, which begin with FROM; ARG lines before the first stage are in all of them."""
    found: list[list[Instruction]] = []
    common: list[Instruction] = []
    for instruction in instructions(text):
        if instruction.name == "FROM":
            found.append([instruction])
        elif found:
            found[-1].append(instruction)
        else:
            common.append(instruction)
    return [[stage[0], *common, *stage[1:]] for stage in found]


def environment(text: str) -> dict[str, str]:
    """Return the variables of one ENV instruction."""
    return dict(word.split("=", 1) for word in text.split())


def copied(stage: list[Instruction]) -> Iterator[str]:
    """Yield the paths that a stage copies from the build context."""
    for instruction in stage:
        if instruction.name == "COPY" and "from" not in instruction.flags:
            yield from instruction.words[:-1]
