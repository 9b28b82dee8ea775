"""One rehearsal of a deployment's Azure side: preview, policies, simulated up, teardown order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from blueprint.file.model.deployment import Deployment
from sandbox.azure.child import Child
from sandbox.azure.order import Teardown, teardown
from sandbox.azure.policy import PolicyPack, PolicyViolation
from sandbox.azure.project import Project
from sandbox.azure.recorder import Existing, Mode
from sandbox.azure.run import Run, run_modes

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = (ROOT / "stacks/azure/cluster", ROOT / "stacks/azure/workloads")
"""The Pulumi projects in the order of their creation; a later one may read the outputs of an earlier one."""

POLICY_PACK = ROOT / "stacks/azure/policy"


@dataclass(frozen=True)
class Rehearsed:
    """One project, planned and created.

    Attributes:
        project: The project and stack.
        preview: Its preview, with the outputs of the projects before it.
        up: Its simulated up; every resource waited for what it needs.
    """

    project: Project
    preview: Run
    up: Run


class Rehearsal(AbstractContextManager["Rehearsal"]):
    """Plans, creates and tears down the Pulumi projects of one deployment on this machine.

    Use it as a context manager: whatever happens inside, its processes are gone afterwards.

    Args:
        stack: Stack name of all projects.
        config: Configuration of each project, before its stack file; a key without a colon is the project's own.
        projects: Folders of the projects, in the order of their creation.
        policy_pack: Folder of the policy pack.

    Attributes:
        projects: The projects.
    """

    def __init__(
        self,
        stack: str,
        config: Mapping[str, str],
        projects: Sequence[Path] = PROJECTS,
        policy_pack: Path = POLICY_PACK,
    ) -> None:
        self.projects = [Project.load(folder, stack, config) for folder in projects]
        config_of_all = {key: value for project in self.projects for key, value in project.config.items()}
        with ExitStack() as until_made:
            self._host = until_made.enter_context(Child([project.program for project in self.projects]))
            self._pack = until_made.enter_context(PolicyPack(policy_pack, config_of_all, self._host))
            self._cleanup = until_made.pop_all()
        self._done: list[Rehearsed] = []

    @classmethod
    def of(cls, deployment: Deployment) -> Self:
        """Return the rehearsal of a deployment: its name is the stack, its file the configuration.

        Raises:
            ProjectError: A project cannot be used.
            PolicyPackError: There is no policy pack.
        """
        return cls(deployment.name, {"deployment": str(Path(deployment.source.file).resolve())})

    def run(self) -> list[Rehearsed]:
        """Preview and create every project.

        Raises:
            EngineError: A program fails, a resource is refused, or one does not wait for what it needs.
        """
        existing = Existing()
        self._done = []
        for project in self.projects:
            preview, up = run_modes(project, (Mode.PREVIEW, Mode.UP), existing, host=self._host)
            self._done.append(Rehearsed(project, preview, up))
            existing = existing.with_stack(project.full_stack, up.graph)
        return list(self._done)

    def policies(self) -> list[str]:
        """Return the names of the policies.

        Raises:
            PolicyPackError: The pack does not start.
        """
        return self._pack.policies()

    def violations(self) -> list[PolicyViolation]:
        """Return what the policy pack says about the previews, project by project; call `run` first.

        Raises:
            PolicyPackError: The pack does not start, or a policy raises.
        """
        return [violation for done in self._done for violation in self._pack.check(done.preview.graph)]

    def teardown(self) -> Teardown:
        """Plan the deletion of what `run` created, the last project first, and check it step by step.

        Raises:
            OrderError: Something would go while another resource needs it.
        """
        return teardown(done.up.graph for done in self._done)

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()
