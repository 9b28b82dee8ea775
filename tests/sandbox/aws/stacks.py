"""A stack under test."""

from __future__ import annotations

import json
from typing import Any

from sandbox.aws.process import LocalAws


class Deployed:
    """A stack under test."""

    def __init__(self, aws: LocalAws, name: str) -> None:
        self.aws = aws
        self.name = name
        self.cloudformation = aws.client("cloudformation")

    def create(
        self, resources: dict[str, Any], outputs: dict[str, Any] | None = None, **sections: dict[str, Any]
    ) -> Deployed:
        body = json.dumps({"Resources": resources, "Outputs": outputs or {}, **sections})
        self.cloudformation.create_stack(StackName=self.name, TemplateBody=body)
        assert self.status == "CREATE_COMPLETE", self.reasons
        return self

    def update(
        self, resources: dict[str, Any], outputs: dict[str, Any] | None = None, **sections: dict[str, Any]
    ) -> Deployed:
        body = json.dumps({"Resources": resources, "Outputs": outputs or {}, **sections})
        self.cloudformation.update_stack(StackName=self.name, TemplateBody=body)
        assert self.status == "UPDATE_COMPLETE", self.reasons
        return self

    def delete(self) -> None:
        self.cloudformation.delete_stack(StackName=self.name)
        live = [item["StackName"] for item in self.cloudformation.describe_stacks()["Stacks"]]
        assert self.name not in live, self.reasons

    def __getitem__(self, logical_id: str) -> str:
        """The physical id of a resource."""
        found = self.cloudformation.describe_stack_resource(StackName=self.name, LogicalResourceId=logical_id)
        return str(found["StackResourceDetail"]["PhysicalResourceId"])

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
