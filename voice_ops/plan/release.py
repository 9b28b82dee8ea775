"""Records the resources of a release, and compares a file with a recorded release."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, rmtree
from tempfile import TemporaryDirectory
from typing import Self

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.exits import INVALID_INPUT
from voice_ops.output import create_exit
from voice_ops.plan.removals import describe_replaced_hosts, find_removal_steps
from voice_ops.synthesis import synthesize, synthesize_templates
from voice_sandbox.aws import diff
from voice_sandbox.changes import OpType, Outage, summarize_operations
from voice_sandbox.rehearsals.aws_outages import find_outages

MANIFEST_FILE, TEMPLATE_SUFFIX = "manifest.json", ".template.json"
UNUSED_FILE_SUFFIXES = (".metadata.json", "tree.json")
"""Suffixes of metadata files. They contain source locations on this machine, and a deploy does not need them."""


@dataclass(frozen=True)
class ReleaseComparison:
    """The changes that a deploy of a file would make to a recorded release.

    Attributes:
        summary: Number of resources that are created, updated, replaced and deleted.
        outages: Unaccepted replacements and deletions of resources that serve calls or store state, and removed stacks.
        hosts: One line for each group whose hosts a deploy replaces.
        refusals: One line for each request of the deploy that Azure would refuse.
    """

    summary: str
    outages: list[Outage]
    hosts: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the deploy would fail, or cause an outage that is not accepted."""
        return bool(self.outages or self.refusals)

    @property
    def text(self) -> str:
        """The summary, followed by a line for each group whose hosts are replaced."""
        return "\n  ".join([self.summary, *self.hosts])

    def as_dict(self) -> dict[str, object]:
        return {
            "outages": [vars(each) for each in self.outages],
            "replaced_hosts": self.hosts,
            "refused_requests": self.refusals,
        }

    @classmethod
    def from_record(cls, deployment: Deployment, record_folder: Path, accepted: Sequence[str]) -> Self:
        """Compare a deployment with the recorded release in a folder."""
        ops: list[OpType] = []
        outage_list: list[Outage] = []
        hosts: tuple[str, ...] = ()
        refusals: tuple[str, ...] = ()
        if deployment.aws_section:
            old, new = _load_recorded_templates(deployment, record_folder), synthesize_templates(deployment)
            # A deploy ignores stacks that were removed from the file, so it does not delete their resources.
            steps = diff.diff_stacks({stack: old[stack] for stack in old if stack in new}, new)
            ops, outage_list = [step.op for step in steps], find_outages(steps, accepted)
            outage_list += [step.to_outage() for step in find_removal_steps(deployment, old, new, accepted)]
            hosts = tuple(describe_replaced_hosts(old, new))
        if deployment.azure_section:
            from voice_ops.preview.changes import (  # noqa: PLC0415  extra `azure`
                compare_with_record,
                find_rejected_requests,
                find_unaccepted_outages,
                list_recorded_preview_paths,
                rehearse_deployment,
            )

            rehearsed, _ = rehearse_deployment(deployment)
            files = list_recorded_preview_paths(record_folder, deployment, rehearsed)
            if not all(file.is_file() for file in files):
                raise _create_no_record_error(deployment, record_folder)
            changes = compare_with_record(files, rehearsed)
            ops += [step.op for steps in changes for step in steps]
            outage_list += find_unaccepted_outages(changes, accepted)
            refusals = tuple(each.summary() for each in find_rejected_requests(rehearsed, changes))
        return cls(summarize_operations(ops), outage_list, hosts, refusals)


def record_release(deployment: Deployment, folder: Path) -> None:
    """Save the cloud assembly and the Pulumi graphs for a deployment in a folder, for later comparisons."""
    if deployment.aws_section:
        assembly_folder = _select_assembly_folder(deployment, folder)
        with TemporaryDirectory(prefix="voice-record-") as work_folder:
            synthesize(deployment, Path(work_folder))
            if assembly_folder.exists():
                rmtree(assembly_folder)
            assembly_folder.mkdir(parents=True)
            for file in Path(work_folder).iterdir():
                if file.name == MANIFEST_FILE:
                    manifest = json.loads(file.read_text(encoding="utf-8"))
                    for artifact in manifest["artifacts"].values():
                        artifact.pop("additionalMetadataFile", None)
                    (assembly_folder / MANIFEST_FILE).write_text(
                        json.dumps(manifest, indent=1) + "\n", encoding="utf-8"
                    )
                elif not file.name.endswith(UNUSED_FILE_SUFFIXES):
                    copyfile(file, assembly_folder / file.name)
    if deployment.azure_section:
        from voice_ops.preview.changes import list_recorded_preview_paths, rehearse_deployment  # noqa: PLC0415  extra `azure`
        from voice_sandbox.azure import state  # noqa: PLC0415

        rehearsed, _ = rehearse_deployment(deployment)
        for file, each in zip(list_recorded_preview_paths(folder, deployment, rehearsed), rehearsed, strict=True):
            state.save_graph(file, each.preview.graph)


def _select_assembly_folder(deployment: Deployment, folder: Path) -> Path:
    return folder / ".voice" / "aws" / deployment.name


def _load_recorded_templates(deployment: Deployment, folder: Path) -> diff.TemplatesByStack:
    files = sorted(_select_assembly_folder(deployment, folder).glob(f"*{TEMPLATE_SUFFIX}"))
    if not files:
        raise _create_no_record_error(deployment, folder)
    return {file.name.removesuffix(TEMPLATE_SUFFIX): json.loads(file.read_text(encoding="utf-8")) for file in files}


def _create_no_record_error(deployment: Deployment, folder: Path) -> Exception:
    record_command = f"`voice plan {deployment.source.file} --record {folder}` records one"
    return create_exit(f"{folder} contains no recorded release of {deployment.name}; {record_command}", INVALID_INPUT)
