"""A release that was recorded: what its deployment made, and what a file would change of it now."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, rmtree
from tempfile import TemporaryDirectory
from typing import Self

from blueprint.file.model.deployment import Deployment
from ops.exits import REFUSED
from ops.output import stop
from ops.synthesis import synthesize, templates
from sandbox.aws import diff
from sandbox.aws.outages import outages
from sandbox.changes import Op, Outage, describe

MANIFEST, TEMPLATE = "manifest.json", ".template.json"
UNUSED = (".metadata.json", "tree.json")
"""What says which line of a program made a resource, on the machine where it ran; a deploy does without."""


@dataclass(frozen=True)
class Comparison:
    """A file beside a recorded release.

    Attributes:
        summary: How many resources are created, updated, replaced and deleted.
        away: Replacements and removals of what serves or holds state that nobody accepted.
    """

    summary: str
    away: list[Outage]

    @classmethod
    def of(cls, deployment: Deployment, recorded: Path, accepted: Sequence[str]) -> Self:
        """Synthesize the templates and run the Pulumi programs, as a deploy would."""
        ops: list[Op] = []
        away: list[Outage] = []
        if deployment.aws_half:
            steps = diff.compare(_recorded_templates(deployment, recorded), templates(deployment))
            ops, away = [step.op for step in steps], outages(steps, accepted)
        if deployment.azure_half:
            from ops.preview.changes import recordings, rehearse, steps_since, unaccepted  # noqa: PLC0415  extra `azure`

            done, _ = rehearse(deployment)
            files = recordings(recorded, deployment, done)
            if not all(file.is_file() for file in files):
                raise _nothing_recorded(deployment, recorded)
            changes = steps_since(files, done)
            ops += [step.op for steps in changes for step in steps]
            away += unaccepted(changes, accepted)
        return cls(describe(ops), away)


def record(deployment: Deployment, folder: Path) -> None:
    """Keep what a deployment makes now, for comparisons in years to come: the cloud assembly, and Pulumi's graphs."""
    if deployment.aws_half:
        kept = _assembly(deployment, folder)
        with TemporaryDirectory(prefix="voice-record-") as made:
            synthesize(deployment, Path(made))
            if kept.exists():
                rmtree(kept)
            kept.mkdir(parents=True)
            for file in Path(made).iterdir():
                if file.name == MANIFEST:
                    manifest = json.loads(file.read_text(encoding="utf-8"))
                    for artifact in manifest["artifacts"].values():
                        artifact.pop("additionalMetadataFile", None)
                    (kept / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
                elif not file.name.endswith(UNUSED):
                    copyfile(file, kept / file.name)
    if deployment.azure_half:
        from ops.preview.changes import recordings, rehearse  # noqa: PLC0415  extra `azure`
        from sandbox.azure import state  # noqa: PLC0415

        done, _ = rehearse(deployment)
        for file, each in zip(recordings(folder, deployment, done), done, strict=True):
            state.save(file, each.preview.graph)


def _assembly(deployment: Deployment, folder: Path) -> Path:
    return folder / ".voice" / "aws" / deployment.name


def _recorded_templates(deployment: Deployment, folder: Path) -> diff.Templates:
    files = sorted(_assembly(deployment, folder).glob(f"*{TEMPLATE}"))
    if not files:
        raise _nothing_recorded(deployment, folder)
    return {file.name.removesuffix(TEMPLATE): json.loads(file.read_text(encoding="utf-8")) for file in files}


def _nothing_recorded(deployment: Deployment, folder: Path) -> Exception:
    how = f"`voice plan {deployment.source.file} --record {folder}` records one"
    return stop(f"{folder}: no release of {deployment.name} is recorded there; {how}", REFUSED)
