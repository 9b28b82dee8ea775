"""A deployment and the AWS account that it is meant for."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import boto3
import yaml
from botocore.exceptions import NoCredentialsError

from blueprint.aws import names
from blueprint.contract.images import Image
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import VAD_IMAGES, asr_images

AREA = "AWS"
"""As reports name it."""

DEPLOYMENT_TAG = "voice-serve:deployment"
"""Tag that every stack puts on what it makes."""


def sign_in(deployment: Deployment) -> boto3.Session:
    """Return a session in the deployment's region, with the credentials that boto3 finds.

    Raises:
        BotoCoreError: There are none, or they cannot be read.
    """
    session = boto3.Session(region_name=deployment.aws.region)
    if session.get_credentials() is None:
        raise NoCredentialsError
    # To make a client takes longer than most questions to it: boto3 builds its class anew each time.
    session.client = cache(session.client)  # type: ignore[method-assign]
    return session


@dataclass(frozen=True)
class Group:
    """One Auto Scaling group of the file.

    Attributes:
        images: What its hosts are to run.
        low: Hosts at least.
        high: Hosts at most.
        budget_s: Time that a host has to finish its sessions.
    """

    name: str
    fleet: str
    images: tuple[Image, ...]
    low: int
    high: int
    budget_s: int


@dataclass(frozen=True)
class Account:
    """One deployment and the account that it is meant for.

    Attributes:
        templates: CloudFormation templates by stack name, as the file makes them now.
        session: In the deployment's region.
    """

    deployment: Deployment
    templates: dict[str, dict[str, Any]]
    session: boto3.Session

    @property
    def region(self) -> str:
        """The deployment's region."""
        return self.deployment.aws.region

    @cached_property
    def caller(self) -> dict[str, str]:
        """``Account`` and ``Arn`` of the credentials."""
        answer = self.session.client("sts").get_caller_identity()
        return {"Account": answer["Account"], "Arn": answer["Arn"]}

    @property
    def groups(self) -> dict[str, Group]:
        """The Auto Scaling groups that the file asks for, by name and in its order."""
        aws, deployment = self.deployment.aws, self.deployment
        hosts, budget_s = aws.vad.hosts_per_zone, aws.vad.drain_timeout_s
        found = [
            Group(name, names.VAD_FLEET, VAD_IMAGES, hosts.min, hosts.max, budget_s)
            for name in names.vad_groups(deployment)
        ]
        found += [
            Group(
                names.group(deployment, fleet.name),
                fleet.name,
                asr_images(fleet),
                fleet.hosts.min,
                fleet.hosts.max,
                fleet.drain_timeout_s,
            )
            for fleet in aws.asr
        ]
        return {group.name: group for group in found}

    def resources(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield the resources of the templates, or those of some types."""
        for template in self.templates.values():
            yield from (each for each in template["Resources"].values() if not kinds or each["Type"] in kinds)

    def listed(
        self, service: str, operation: str, path: str, region: str | None = None, **request: object
    ) -> Iterator[Any]:
        """Yield what a listing has, over all of its pages; a JMESPath leads from an answer to its items."""
        client: Any = self.session.client(service, region_name=region)  # type: ignore[call-overload]
        found = client.get_paginator(operation).paginate(**request).search(path)
        return (each for each in found if each is not None)

    def is_ours(self, tags: list[Any]) -> bool:
        """Whether a resource's tags say that one of the deployment's stacks made it."""
        return any(tag["Key"] == "aws:cloudformation:stack-name" and tag["Value"] in self.templates for tag in tags)

    def stacks(self) -> dict[str, str]:
        """Return the status of those stacks that exist."""
        found = self.listed("cloudformation", "describe_stacks", "Stacks[?StackStatus != 'DELETE_COMPLETE']")
        return {each["StackName"]: each["StackStatus"] for each in found if each["StackName"] in self.templates}

    def live_templates(self) -> dict[str, dict[str, Any]]:
        """Return the templates that the existing stacks were made from, whatever the file says now."""
        client = self.session.client("cloudformation")
        bodies = {stack: client.get_template(StackName=stack)["TemplateBody"] for stack in self.stacks()}
        # The CDK sends YAML; boto3 parses a JSON template only.
        return {
            stack: yaml.load(body, Loader=yaml.CSafeLoader) if isinstance(body, str) else dict(body)
            for stack, body in bodies.items()
        }

    def physical_ids(self, stack: str) -> dict[str, str]:
        """Return the ids of an existing stack's resources by logical id."""
        path = "StackResourceSummaries[?PhysicalResourceId && ResourceStatus != 'DELETE_COMPLETE']"
        found = self.listed("cloudformation", "list_stack_resources", path, StackName=stack)
        return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}

    def gateway(self) -> tuple[str, str] | None:
        """Return the cluster and the ARN of the gateway's service; ``None`` before it is deployed."""
        return self.service("edge")

    def service(self, tier: str) -> tuple[str, str] | None:
        """Return the cluster and the ARN of a stack's only service; ``None`` before it is deployed."""
        stack = names.stack(self.deployment, tier)
        for arn in self.physical_ids(stack).values() if stack in self.stacks() else ():
            _, is_service, place = arn.partition(":service/")
            if is_service:
                return place.split("/")[0], arn
        return None

    def renew_services(self) -> None:
        """Have tasks of gateway and agents replaced: they get the store's host and password when they start."""
        for cluster, service in filter(None, map(self.service, ("edge", "agents"))):
            self.session.client("ecs").update_service(cluster=cluster, service=service, forceNewDeployment=True)
