"""A fleet whose file changes, deployed to a local AWS by the real CDK."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from blueprint import Deployment
from ops.sandbox.month import hosts
from ops.synthesis import synthesize
from sandbox.aws.cdk import Cdk
from sandbox.aws.rehearsal import Rehearsal
from tests.blueprint.documents import Edits, edited, load_text

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient


class Fleet:
    """A fleet, in an account of its own, of a deployment whose file changes.

    Args:
        base: The file before any change.
        group: Its Auto Scaling group.
        stack: The group's stack.
        folder: Takes the changed files and their cloud assemblies.
    """

    def __init__(self, rehearsal: Rehearsal, base: Path, *, group: str, stack: str, folder: Path) -> None:
        self.rehearsal, self._base, self._group, self._stack, self._folder = rehearsal, base, group, stack, folder

    def file(self, edits: Edits) -> Deployment:
        return load_text(edited(edits, self._base.read_text()), self._folder)

    def deploy(self, edits: Edits, *stacks: str) -> None:
        deployment = self.file(edits)
        cdk = Cdk(self.rehearsal.aws, deployment, self.rehearsal.home)
        cdk.take(Path(synthesize(deployment, self._folder / "cdk.out").directory))
        cdk.deploy_only(*stacks)

    @property
    def autoscaling(self) -> AutoScalingClient:
        return self.rehearsal.session.client("autoscaling", endpoint_url=self.rehearsal.aws.endpoint)

    def hosts(self) -> dict[str, tuple[str, str]]:
        """Return machine image and user data of the hosts in service and in the warm pool."""
        return hosts(self.rehearsal.aws, self._group)

    def status(self) -> str:
        client = self.rehearsal.session.client("cloudformation", endpoint_url=self.rehearsal.aws.endpoint)
        return client.describe_stacks(StackName=self._stack)["Stacks"][0]["StackStatus"]
