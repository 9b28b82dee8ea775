"""Helper for stacks under test."""

from __future__ import annotations

import json
from typing import Any

from voice_sandbox.aws.process import LocalAws


class Deployed:
    """A stack that is created, updated and deleted by template; each step must succeed."""

    def __init__(self, aws: LocalAws, name: str) -> None:
        self.aws = aws
        self.name = name
        self.cloudformation = aws.client("cloudformation")

    def try_create(self, resources: dict[str, Any], **sections: dict[str, Any]) -> str:
        """Create the stack and return its final status."""
        body = json.dumps({"Resources": resources, **sections})
        self.cloudformation.create_stack(StackName=self.name, TemplateBody=body)
        return self.status

    def create(self, resources: dict[str, Any], **sections: dict[str, Any]) -> None:
        assert self.try_create(resources, **sections) == "CREATE_COMPLETE", self.reasons

    def try_update(self, resources: dict[str, Any], **sections: dict[str, Any]) -> str:
        """Update the stack and return its final status."""
        body = json.dumps({"Resources": resources, **sections})
        self.cloudformation.update_stack(StackName=self.name, TemplateBody=body)
        return self.status

    def update(self, resources: dict[str, Any], **sections: dict[str, Any]) -> None:
        assert self.try_update(resources, **sections) == "UPDATE_COMPLETE", self.reasons

    def plan(self, resources: dict[str, Any], **sections: dict[str, Any]) -> None:
        """Create a change set."""
        body = json.dumps({"Resources": resources, **sections})
        self.cloudformation.create_change_set(StackName=self.name, ChangeSetName="plan", TemplateBody=body)

    def delete(self) -> None:
        self.cloudformation.delete_stack(StackName=self.name)
        assert not self.exists, self.reasons

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3's clients are made at run time
        return self.aws.client(service)

    def __getitem__(self, logical_id: str) -> str:
        """Return the physical id of a resource."""
        found = self.cloudformation.describe_stack_resource(StackName=self.name, LogicalResourceId=logical_id)
        return str(found["StackResourceDetail"]["PhysicalResourceId"])

    @property
    def exists(self) -> bool:
        return self.name in [item["StackName"] for item in self.cloudformation.describe_stacks()["Stacks"]]

    @property
    def status(self) -> str:
        return str(self.cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]["StackStatus"])

    @property
    def outputs(self) -> dict[str, str]:
        stack = self.cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]
        return {item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", [])}

    @property
    def reasons(self) -> list[str]:
        events = self.cloudformation.describe_stack_events(StackName=self.name)["StackEvents"]
        failed = [item for item in events if item["ResourceStatus"].endswith("FAILED")]
        return [f"{item['LogicalResourceId']}: {item.get('ResourceStatusReason')}" for item in failed]
