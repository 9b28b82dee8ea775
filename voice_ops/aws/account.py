"""Reads the resources of a deployment in its AWS account."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import boto3
import yaml
from botocore.exceptions import NoCredentialsError

from voice_blueprint.aws import names
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import VAD_IMAGES, list_asr_images
from voice_ops.aws.session import create_session

REPORT_AREA = "AWS"
"""Name of the cloud in reports."""
SERVICE_TIERS = ("edge", "agents")
"""Tiers whose stacks have an ECS service."""
NOT_DEPLOYED_STATES = frozenset(
    {"CREATE_FAILED", "DELETE_FAILED", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"}
)
"""States of stacks that exist, but whose creation or deletion did not complete. The CDK replaces a stack whose creation
failed."""


def create_deployment_session(deployment: Deployment) -> boto3.Session:
    """Create a session in the region of a deployment, with the credentials that boto3 finds.

    Raises:
        BotoCoreError: There are no credentials, or they cannot be read.
    """
    client_session = create_session(deployment.aws.region)
    if client_session.get_credentials() is None:
        raise NoCredentialsError
    return client_session


@dataclass(frozen=True)
class ScalingGroup:
    """An Auto Scaling group that the file defines.

    Attributes:
        images: Container images that the hosts run.
        min_hosts: Minimum number of hosts.
        max_hosts: Maximum number of hosts.
        drain_budget_s: Maximum time for a host to finish its sessions, in seconds.
    """

    name: str
    fleet: str
    images: tuple[Image, ...]
    min_hosts: int
    max_hosts: int
    drain_budget_s: int


@dataclass(frozen=True)
class Account:
    """A deployment and its AWS account.

    Attributes:
        templates: CloudFormation templates of the current file, by stack name.
        session: Session in the region of the deployment.
    """

    deployment: Deployment
    templates: dict[str, dict[str, Any]]
    session: boto3.Session

    @property
    def region(self) -> str:
        """Region of the deployment."""
        return self.deployment.aws.region

    @cached_property
    def caller_identity(self) -> dict[str, str]:
        """Account id and ARN of the signed-in identity, with the keys ``Account`` and ``Arn``."""
        answer = self.session.client("sts").get_caller_identity()
        return {"Account": answer["Account"], "Arn": answer["Arn"]}

    @property
    def scaling_groups(self) -> dict[str, ScalingGroup]:
        """Auto Scaling groups by name, in the order of the file."""
        aws, deployment = self.deployment.aws, self.deployment
        hosts, drain_budget_s = aws.vad.hosts_per_zone, aws.vad.drain_timeout_s
        results = [
            ScalingGroup(name, names.VAD_FLEET, VAD_IMAGES, hosts.min, hosts.max, drain_budget_s)
            for name in names.list_vad_group_names(deployment)
        ]
        results += [
            ScalingGroup(
                names.build_group_name(deployment, fleet.name),
                fleet.name,
                list_asr_images(fleet),
                fleet.hosts.min,
                fleet.hosts.max,
                fleet.drain_timeout_s,
            )
            for fleet in aws.asr
        ]
        return {group.name: group for group in results}

    def iter_resources(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield the resources in the templates. If types are specified, other types are omitted."""
        for template in self.templates.values():
            yield from (each for each in template["Resources"].values() if not kinds or each["Type"] in kinds)

    def iter_paginated_items(
        self, service: str, operation: str, path: str, region: str | None = None, **request: object
    ) -> Iterator[Any]:
        """Yield the items that the JMESPath expression ``path`` selects in each response of a paginated operation."""
        client: Any = self.session.client(service, region_name=region)  # type: ignore[call-overload]
        match = client.get_paginator(operation).paginate(**request).search(path)
        return (each for each in match if each is not None)

    def belongs_to_deployment(self, tags: list[Any]) -> bool:
        """Return True if a tag of the resource contains the name of one of the deployment's stacks."""
        return any(tag["Key"] == "aws:cloudformation:stack-name" and tag["Value"] in self.templates for tag in tags)

    def fetch_stack_statuses(self) -> dict[str, str]:
        """Return the status of all existing stacks by name, including stacks that were removed from the file."""
        tag = {"Key": names.DEPLOYMENT_TAG, "Value": self.deployment.name}
        result = self.iter_paginated_items(
            "cloudformation", "describe_stacks", "Stacks[?StackStatus != 'DELETE_COMPLETE']"
        )
        return {
            each["StackName"]: each["StackStatus"]
            for each in result
            if each["StackName"] in self.templates or tag in each.get("Tags", [])
        }

    def fetch_removed_stack_statuses(self) -> dict[str, str]:
        """Return the status of the existing stacks that were removed from the file, by name."""
        return {stack: state for stack, state in self.fetch_stack_statuses().items() if stack not in self.templates}

    def fetch_live_templates(self) -> dict[str, dict[str, Any]]:
        """Return the deployed templates of all existing stacks, by name."""
        return {stack: self.fetch_live_template(stack) for stack in self.fetch_stack_statuses()}

    def fetch_live_template(self, stack: str) -> dict[str, Any]:
        """Return the deployed template of an existing stack."""
        body = self.session.client("cloudformation").get_template(StackName=stack)["TemplateBody"]
        # The CDK uploads YAML, and boto3 only parses JSON templates.
        return yaml.load(body, Loader=yaml.CSafeLoader) if isinstance(body, str) else dict(body)

    def fetch_physical_ids(self, stack: str) -> dict[str, str]:
        """Return the physical ids of an existing stack's resources, by logical id."""
        path = "StackResourceSummaries[?PhysicalResourceId && ResourceStatus != 'DELETE_COMPLETE']"
        result = self.iter_paginated_items("cloudformation", "list_stack_resources", path, StackName=stack)
        return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in result}

    def find_gateway_service(self) -> tuple[str, str] | None:
        """Return the cluster and ARN of the gateway's service, or ``None`` if the service is not deployed."""
        return self.find_service("edge")

    def find_service(self, tier: str) -> tuple[str, str] | None:
        """Return the cluster and ARN of the only ECS service in a tier's stack, or ``None`` if it is not deployed."""
        stack = names.build_stack_name(self.deployment, tier)
        for arn in self.fetch_physical_ids(stack).values() if stack in self.fetch_stack_statuses() else ():
            _, is_service, path = arn.partition(":service/")
            if is_service:
                return path.split("/")[0], arn
        return None

    def find_unfinished_services(self, since: datetime) -> Iterator[str]:
        """Yield the description of each service that may still run tasks from before the given time.

        When ECS rolls back a deployment, the previous deployment becomes primary again and keeps its creation time.
        """
        client = self.session.client("ecs")
        for cluster, arn in filter(None, map(self.find_service, SERVICE_TIERS)):
            for service in client.describe_services(cluster=cluster, services=[arn])["services"]:
                name, deployments = service["serviceName"], service["deployments"]
                states = [f"{each['status']} {each.get('rolloutState', '')}" for each in deployments]
                if any(each["status"] == "PRIMARY" and each["createdAt"] < since for each in deployments):
                    yield (
                        f"{name} was deployed before the newest password: replace its tasks with `aws ecs "
                        f"update-service --region {self.region} --cluster {cluster} --service {name} "
                        "--force-new-deployment`"
                    )
                elif states != ["PRIMARY COMPLETED"]:
                    yield f"{name} has the deployments {', '.join(states)}"

    def redeploy_services(self) -> None:
        """Replace the tasks of the gateway and agents, so that new tasks read the store's current host and password."""
        for cluster, service in filter(None, map(self.find_service, SERVICE_TIERS)):
            self.session.client("ecs").update_service(cluster=cluster, service=service, forceNewDeployment=True)
