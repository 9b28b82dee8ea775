"""Rehearses a deployment's Azure section: previews, policies, a simulated up and the teardown order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import voice_stacks
from voice_blueprint.file.model.deployment import Deployment
from voice_sandbox.azure.child import LanguageHost
from voice_sandbox.azure.order import DeletionPlan, plan_teardown
from voice_sandbox.azure.policy import PolicyPack, PolicyViolation
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.recorder import PreexistingResources, RunMode
from voice_sandbox.azure.run import RunResult, run_modes

_STACKS_FOLDER = Path(voice_stacks.__file__).resolve().parent / "azure"
PROJECT_FOLDERS = (_STACKS_FOLDER / "cluster", _STACKS_FOLDER / "workloads")
"""The Pulumi projects in the order of their creation. Later projects may read the outputs of earlier ones."""

POLICY_PACK_FOLDER = _STACKS_FOLDER / "policy"


@dataclass(frozen=True)
class CreatedProject:
    """A planned and created project.

    Attributes:
        project: The project and stack.
        preview: Preview with the outputs of the previous projects.
        up: Simulated up, in which every resource waited for its dependencies.
    """

    project: Project
    preview: RunResult
    up: RunResult


class Rehearsal(AbstractContextManager["Rehearsal"]):
    """Plans, creates and tears down the Pulumi projects for a deployment on this machine.

    Use it as a context manager, which always stops its processes.

    Args:
        stack: Stack name of all projects.
        config: Configuration of each project, which takes precedence over its stack file; a key without a colon belongs
            to the project.
        projects: Folders of the projects, in the order of their creation.
        policy_pack: Folder of the policy pack.

    Attributes:
        projects: The projects.
    """

    def __init__(
        self,
        stack: str,
        config: Mapping[str, str],
        projects: Sequence[Path] = PROJECT_FOLDERS,
        policy_pack: Path = POLICY_PACK_FOLDER,
    ) -> None:
        self.projects = [Project.load(folder, stack, config) for folder in projects]
        merged_config = {key: value for project in self.projects for key, value in project.config.items()}
        with ExitStack() as exit_stack:
            self._host = exit_stack.enter_context(LanguageHost([project.program for project in self.projects]))
            self._pack = exit_stack.enter_context(PolicyPack(policy_pack, merged_config, self._host))
            self._cleanup = exit_stack.pop_all()
        self._done: list[CreatedProject] = []

    @classmethod
    def from_deployment(cls, deployment: Deployment) -> Self:
        """Return the rehearsal of a deployment, whose name is the stack name and whose file is the configuration.

        Raises:
            ProjectError: A project is invalid.
            PolicyPackError: There is no policy pack.
        """
        return cls(deployment.name, {"deployment": str(Path(deployment.source.file).resolve())})

    def run(self) -> list[CreatedProject]:
        """Preview and create every project.

        Raises:
            EngineError: A program fails, or a resource is rejected or does not wait for its dependency.
        """
        existing = PreexistingResources()
        self._done = []
        for project in self.projects:
            preview, up = run_modes(project, (RunMode.PREVIEW, RunMode.UP), existing, host=self._host)
            self._done.append(CreatedProject(project, preview, up))
            existing = existing.with_stack(project.full_stack_name, up.graph)
        return list(self._done)

    def list_policy_names(self) -> list[str]:
        """Return the names of the policies.

        Raises:
            PolicyPackError: The pack does not start.
        """
        return self._pack.list_policy_names()

    def find_violations(self) -> list[PolicyViolation]:
        """Return the policy violations in the previews that `run` has created, in the order of the projects.

        Raises:
            PolicyPackError: The pack does not start, or a policy raises an exception.
        """
        return [violation for done in self._done for violation in self._pack.check(done.preview.graph)]

    def plan_teardown(self) -> DeletionPlan:
        """Plan the deletion of the resources that `run` has created, last project first, and check each step.

        Raises:
            DependencyError: A resource would be deleted while another one needs it.
        """
        return plan_teardown(done.up.graph for done in self._done)

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()
