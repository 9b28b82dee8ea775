"""What a deployment would change of one that was recorded, and what would be away meanwhile."""

from collections.abc import Sequence
from pathlib import Path

from blueprint.file.model.deployment import Deployment
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.output import stop
from sandbox.azure import state
from sandbox.azure.diff import Step, compare
from sandbox.azure.errors import EngineError, PolicyPackError, ProgramError, ProjectError
from sandbox.azure.outages import outages
from sandbox.azure.policy import PolicyViolation
from sandbox.azure.rehearsal import Rehearsal, Rehearsed
from sandbox.changes import Outage


def rehearse(deployment: Deployment) -> tuple[list[Rehearsed], list[PolicyViolation]]:
    """Run the Pulumi programs of a deployment and the policy pack; whatever fails ends the command."""
    try:
        with Rehearsal.of(deployment) as rehearsal:
            return rehearsal.run(), rehearsal.violations()
    except (ProgramError, ProjectError, PolicyPackError) as error:
        raise stop(str(error), FAILED) from None
    except EngineError as error:
        raise stop(str(error), REFUSED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: the programs have been stopped", INTERRUPTED) from None


def recordings(folder: Path, deployment: Deployment, done: Sequence[Rehearsed]) -> list[Path]:
    """Return where previews of each project are recorded."""
    return [state.state_file(folder, deployment.name, each.project.name) for each in done]


def steps_since(recorded: Sequence[Path], done: Sequence[Rehearsed]) -> list[list[Step]]:
    """Return what changes of each project; all is new where nothing was recorded."""
    return [compare(state.load(file), each.preview.graph) for file, each in zip(recorded, done, strict=True)]


def unaccepted(steps: Sequence[list[Step]], accepted: Sequence[str]) -> list[Outage]:
    """Return what would be away, without what is accepted by name."""
    return [outage for changes in steps for outage in outages(changes, accepted)]
