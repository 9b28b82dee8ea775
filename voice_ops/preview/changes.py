"""Compares a deployment with recorded previews, and finds the services that the changes affect."""

from collections.abc import Sequence
from pathlib import Path

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.output import create_exit
from voice_sandbox.azure import state
from voice_sandbox.azure.diff import Step, diff_graphs
from voice_sandbox.azure.errors import EngineError, PolicyPackError, ProgramError, ProjectError
from voice_sandbox.azure.policy import PolicyViolation
from voice_sandbox.azure.refusals import Rejection, find_rejections
from voice_sandbox.changes import Outage
from voice_sandbox.rehearsals.azure import CreatedProject, Rehearsal
from voice_sandbox.rehearsals.azure_outages import find_outages


def rehearse_deployment(deployment: Deployment) -> tuple[list[CreatedProject], list[PolicyViolation]]:
    """Run a deployment's Pulumi programs and the policy pack. Exit if one of them fails."""
    try:
        with Rehearsal.from_deployment(deployment) as rehearsal:
            return rehearsal.run(), rehearsal.find_violations()
    except (ProgramError, ProjectError, PolicyPackError) as error:
        raise create_exit(str(error), FAILED) from None
    except EngineError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: the programs have been stopped", INTERRUPTED) from None


def list_recorded_preview_paths(
    folder: Path, deployment: Deployment, rehearsed: Sequence[CreatedProject]
) -> list[Path]:
    """Return the files in which the previews of both programs are recorded."""
    return [state.get_state_file(folder, deployment.name, each.project.name) for each in rehearsed]


def compare_with_record(recorded: Sequence[Path], rehearsed: Sequence[CreatedProject]) -> list[list[Step]]:
    """Return the changes to each project since its recorded preview. Without a record, all resources are new."""
    return [
        diff_graphs(state.load_graph(file), each.preview.graph) for file, each in zip(recorded, rehearsed, strict=True)
    ]


def find_rejected_requests(rehearsed: Sequence[CreatedProject], steps: Sequence[list[Step]]) -> list[Rejection]:
    """Return the requests to create or change resources that Azure would reject."""
    return find_rejections([each.up.graph for each in rehearsed], [step for changes in steps for step in changes])


def find_unaccepted_outages(steps: Sequence[list[Step]], accepted: Sequence[str]) -> list[Outage]:
    """Return the outages that the changes cause, except for outages that the operator has accepted by name."""
    return [outage for changes in steps for outage in find_outages(changes, accepted)]
