"""A fleet whose file changes, deployed to a local AWS by the real CDK."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blueprint import Deployment
from blueprint.aws import names
from blueprint.hosts import artifacts_name
from ops.synthesis import synthesize
from sandbox.aws.cdk import Cdk
from sandbox.aws.cloudformation.template import dependencies, in_order
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

    def run_jobs(self, edits: Edits) -> None:
        """Start the job of each fleet as its runbook says, and leave what it leaves: no machine boots here."""
        file, client = self.file(edits), self.rehearsal.aws.client
        self.deploy(edits, names.stack(file, "asr"))
        made = client("cloudformation").describe_stack_resources(StackName=names.stack(file, "registry"))
        resources = made["StackResources"]
        (bucket,) = (r["PhysicalResourceId"] for r in resources if r["ResourceType"] == "AWS::S3::Bucket")
        for each in file.aws.asr:
            job = {"LaunchTemplateName": names.job(file, each.name)}
            (host,) = client("ec2").run_instances(LaunchTemplate=job, MinCount=1, MaxCount=1)["Instances"]
            key = f"{artifacts_name(file, each)}/complete"
            client("s3").put_object(Bucket=bucket, Key=key, Body=b"complete")
            client("ec2").terminate_instances(InstanceIds=[host["InstanceId"]])

    @property
    def autoscaling(self) -> AutoScalingClient:
        return self.rehearsal.session.client("autoscaling", endpoint_url=self.rehearsal.aws.endpoint)

    def hosts(self) -> dict[str, tuple[str, str]]:
        """Return machine image and user data of the hosts in service and in the warm pool."""
        ec2 = self.rehearsal.session.client("ec2", endpoint_url=self.rehearsal.aws.endpoint)
        client, name = self.autoscaling, self._group
        (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        pool = client.describe_warm_pool(AutoScalingGroupName=name)["Instances"]
        found = {}
        for host in [*group["Instances"], *pool]:
            name = host["InstanceId"]
            instance = ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]
            script = ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")["UserData"]["Value"]
            found[name] = (instance["ImageId"], base64.b64decode(script).decode())
        return found

    def status(self) -> str:
        client = self.rehearsal.session.client("cloudformation", endpoint_url=self.rehearsal.aws.endpoint)
        return client.describe_stacks(StackName=self._stack)["Stacks"][0]["StackStatus"]


def last(template: Mapping[str, Any]) -> str:
    """Return the resource of a template that is created last."""
    return in_order(dependencies(template["Resources"]))[-1]
