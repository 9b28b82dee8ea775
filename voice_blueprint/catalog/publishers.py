"""Publishers' images, as described by their Dockerfiles and release workflows."""

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from voice_blueprint.base import Model
from voice_blueprint.catalog.reading import create_table_reader

CommitHash = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class ListeningPort(Model):
    """The port of a publisher's program.

    Attributes:
        flag: Flag that sets the port, or ``None``.
        default: Port without the flag.
    """

    flag: str | None = None
    default: int


class UnprivilegedSettings(Model):
    """Settings that are required if the program runs as a user that the image does not define.

    Attributes:
        variables: Environment variables that the container requires.
        source: Source of the requirement.
    """

    variables: tuple[str, ...]
    source: str


class PublishedImage(Model):
    """A publisher's image; the header of ``publishers.yaml`` describes the fields."""

    engine: str
    version: str
    repository: str
    file: str
    commit: CommitHash
    release: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    nearest: str | None = None
    tag: str
    tag_file: str
    tag_commit: CommitHash
    entrypoint: tuple[str, ...]
    user: str
    working_dir: str
    path: tuple[str, ...]
    inherited: tuple[str, ...] | None
    programs: dict[str, str]
    unprivileged: UnprivilegedSettings | None
    port: ListeningPort | None = None
    health: str | None = None

    @property
    def is_from_release(self) -> bool:
        """Whether the Dockerfile was read at the commit of the pinned release."""
        return self.release is not None and self.commit.startswith(self.release)

    def contains_program(self, program: str) -> bool:
        """Return True if the image contains a program, given as the first word of a command."""
        if program.startswith("/"):
            return program in self.programs.values()
        installed = self.programs.get(program)
        return installed is not None and str(PurePosixPath(installed).parent) in (*self.path, *(self.inherited or ()))


published_images = create_table_reader("publishers.yaml", PublishedImage, key="engine")
"""Publishers' images by the name of their engine in the catalogue."""
