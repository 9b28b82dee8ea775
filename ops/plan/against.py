"""What a file would change of a release that a preview has recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from blueprint.file.model.deployment import Deployment
from ops.exits import REFUSED
from ops.output import stop
from ops.preview.changes import recordings, refuse, rehearse, steps_since, unaccepted
from ops.preview.tree import describe_changes
from sandbox.azure.outages import Outage


@dataclass(frozen=True)
class Comparison:
    """A file beside a recorded release.

    Attributes:
        summary: How many resources are created, updated, replaced and deleted.
        away: Replacements of what serves or holds state that nobody accepted.
    """

    summary: str
    away: list[Outage]

    @classmethod
    def of(cls, deployment: Deployment, recorded: Path, accepted: Sequence[str]) -> Self:
        """Run the Pulumi programs, as a preview does."""
        if deployment.azure_half is None:
            raise stop("--against: the file has no section `azure`; `cdk diff` compares the AWS half", REFUSED)
        done, _ = rehearse(deployment)
        files = recordings(recorded, deployment, done)
        if not all(file.is_file() for file in files):
            how = f"`voice preview azure {deployment.source.file} --state {recorded}` records one"
            raise stop(f"{recorded}: no release of {deployment.name} is recorded there; {how}", REFUSED)
        steps = steps_since(files, done)
        everything = [step for changes in steps for step in changes]
        return cls(describe_changes(everything), unaccepted(steps, accepted))

    def refuse(self) -> None:
        """End the command where something would be away."""
        refuse(self.away)
