"""A fleet that the real CDK deploys to a local AWS from changing files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.blueprint.documents import Edits, edit_document, load_text
from voice_blueprint import Deployment
from voice_ops.sandbox.month import describe_group_hosts
from voice_ops.synthesis import synthesize
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient


class Fleet:
    """A fleet in a separate account, whose deployment file changes.

    Args:
        base: Deployment file before any change.
        group: Its Auto Scaling group.
        stack: The group's stack.
        folder: Folder for the changed files and their cloud assemblies.
    """

    def __init__(self, rehearsal: Rehearsal, base: Path, *, group: str, stack: str, folder: Path) -> None:
        self.rehearsal, self._base, self._group, self._stack, self._folder = rehearsal, base, group, stack, folder

    def file(self, edits: Edits) -> Deployment:
        return load_text(edit_document(edits, self._base.read_text()), self._folder)

    def deploy(self, edits: Edits, *stacks: str) -> None:
        deployment = self.file(edits)
        cdk = Cdk(self.rehearsal.aws, deployment, self.rehearsal.home)
        cdk.use_assembly(Path(synthesize(deployment, self._folder / "cdk.out").directory))
        cdk.deploy_only(*stacks)

    @property
    def autoscaling(self) -> AutoScalingClient:
        return self.rehearsal.session.client("autoscaling", endpoint_url=self.rehearsal.aws.endpoint)

    def hosts(self) -> dict[str, tuple[str, str]]:
        """Return machine image and user data of the hosts in service and in the warm pool."""
        return describe_group_hosts(self.rehearsal.aws, self._group)

    def status(self) -> str:
        client = self.rehearsal.session.client("cloudformation", endpoint_url=self.rehearsal.aws.endpoint)
        return client.describe_stacks(StackName=self._stack)["Stacks"][0]["StackStatus"]
