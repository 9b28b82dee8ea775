"""Parser of Dockerfiles: joins continuation lines, removes comments, and separates stages."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_FLAG = re.compile(r"^--[a-z-]+(=\S+)?$")


@dataclass(frozen=True)
class Instruction:
    """One instruction with its continuation lines."""

    line: int
    keyword: str
    text: str

    @property
    def words(self) -> list[str]:
        """Return the arguments without flags, in the JSON or the shell form."""
        rest = self.text
        while (first := rest.split(maxsplit=1)) and _FLAG.match(first[0]):
            rest = first[1] if len(first) > 1 else ""
        if rest.startswith("["):
            return [str(word) for word in json.loads(rest)]
        return _WORD.findall(rest)

    @property
    def flags(self) -> list[str]:
        """Return the flags before the arguments."""
        found = []
        for word in self.text.split():
            if not _FLAG.match(word):
                break
            found.append(word)
        return found


@dataclass(frozen=True)
class Dockerfile:
    """The instructions of one file."""

    instructions: tuple[Instruction, ...]

    def all(self, *keywords: str) -> list[Instruction]:
        """Return the instructions with one of these keywords."""
        return [instruction for instruction in self.instructions if instruction.keyword in keywords]

    @property
    def stages(self) -> list[list[Instruction]]:
        """Return the instructions of each stage, starting with FROM."""
        stages: list[list[Instruction]] = []
        for instruction in self.instructions:
            if instruction.keyword == "FROM":
                stages.append([])
            if stages:
                stages[-1].append(instruction)
        return stages

    @property
    def arguments(self) -> dict[str, str | None]:
        """Return every build argument with its default, from all stages."""
        declared = (word.partition("=") for instruction in self.all("ARG") for word in instruction.words)
        return {name: default if equals else None for name, equals, default in declared}


def parse(text: str) -> Dockerfile:
    """Parse a Dockerfile without here-documents.

    Raises:
        ValueError: The file has a here-document, or ends in the middle of an instruction.
    """
    if re.search(r"^\s*(RUN|COPY|ADD)\b.*<<-?\w", text, re.MULTILINE):
        raise ValueError("here-documents are not read: put the script into a file")
    instructions: list[Instruction] = []
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        start = start or number
        pending += line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        keyword, _, rest = pending.partition(" ")
        instructions.append(Instruction(start, keyword.upper(), rest.strip()))
        pending, start = "", 0
    if pending:
        raise ValueError("ends in the middle of an instruction")
    return Dockerfile(tuple(instructions))


def read(folder: Path) -> Dockerfile:
    """Parse the Dockerfile of one folder."""
    return parse((folder / "Dockerfile").read_text(encoding="utf-8"))
