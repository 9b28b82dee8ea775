"""A deployment in its account, as `voice status` and `voice teardown` see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from blueprint.aws import names
from blueprint.file.model.deployment import Deployment

if TYPE_CHECKING:
    import boto3

DEPLOYMENT_TAG = "voice-serve:deployment"
"""Tag that every stack puts on what it makes."""


@dataclass(frozen=True)
class Deployed:
    """One deployment and the account that it is meant for.

    Attributes:
        templates: CloudFormation templates by stack name, as the file makes them now.
        session: In the deployment's region.
    """

    deployment: Deployment
    templates: dict[str, dict[str, Any]]
    session: boto3.Session

    @property
    def groups(self) -> set[str]:
        """Names of the deployment's Auto Scaling groups."""
        fleets = {names.group(self.deployment, fleet.name) for fleet in self.deployment.aws.asr}
        return fleets | set(names.vad_groups(self.deployment))

    def stacks(self) -> dict[str, str]:
        """Return the status of those stacks that exist."""
        pages = self.session.client("cloudformation").get_paginator("describe_stacks").paginate()
        return {
            stack["StackName"]: stack["StackStatus"]
            for page in pages
            for stack in page["Stacks"]
            if stack["StackName"] in self.templates and stack["StackStatus"] != "DELETE_COMPLETE"
        }

    def protected(self) -> set[str]:
        """Return the names of the account's stacks that refuse deletion."""
        pages = self.session.client("cloudformation").get_paginator("describe_stacks").paginate()
        return {
            each["StackName"] for page in pages for each in page["Stacks"] if each.get("EnableTerminationProtection")
        }

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
        pages = self.session.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
        return {
            resource["LogicalResourceId"]: resource["PhysicalResourceId"]
            for page in pages
            for resource in page["StackResourceSummaries"]
            if resource.get("PhysicalResourceId") and resource["ResourceStatus"] != "DELETE_COMPLETE"
        }
