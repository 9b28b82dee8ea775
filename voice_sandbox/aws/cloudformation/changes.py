"""Change sets, which `cdk diff` and a plain `cdk deploy` create before a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from moto.cloudformation.models import Change
from moto.core.utils import utcnow

from voice_sandbox.aws.cloudformation.operations import DesiredState
from voice_sandbox.aws.cloudformation.stack import Stack


@dataclass
class ChangeSet:
    """A change set, with the attributes that moto's serializer reads."""

    NO_CHANGES_MESSAGE: ClassVar[str] = (
        "The submitted information didn't contain changes. Submit different information to create a change set."
    )

    change_set_id: str
    change_set_name: str
    change_set_type: str
    stack: Stack
    desired: DesiredState
    description: str | None
    notification_arns: list[str]
    changes: list[Change]
    imports_existing: bool = False
    status: str = "CREATE_COMPLETE"
    execution_status: str = "AVAILABLE"
    status_reason: str | None = None
    creation_time: datetime = field(default_factory=utcnow)

    @property
    def stack_id(self) -> str:
        return self.stack.stack_id

    @property
    def stack_name(self) -> str:
        return self.stack.name

    @property
    def parameters(self) -> Mapping[str, str]:
        return self.desired.parameters

    def fail_if_empty(self) -> None:
        """Mark the change set as failed, as AWS does, if there are no changes."""
        if self.change_set_type == "UPDATE" and not has_changes(self.stack, self.desired):
            self.status, self.execution_status, self.status_reason = "FAILED", "UNAVAILABLE", self.NO_CHANGES_MESSAGE


def has_changes(stack: Stack, desired: DesiredState) -> bool:
    """Return True if a stack differs from the desired state."""
    return (
        desired.template != stack.template_dict
        or desired.resolved_parameters != stack.resolved_parameters
        or desired.tags not in (None, stack.tags)
    )


def plan_changes(stack: Stack, template: Mapping[str, Any]) -> list[Change]:
    """Return the change to each resource whose part of the template differs."""
    old: Mapping[str, Any] = stack.template_dict.get("Resources", {})
    new: Mapping[str, Any] = template["Resources"]
    kinds = {name: body["Type"] for name, body in {**old, **new}.items()}
    actions = {name: "Add" for name in new if name not in old}
    actions.update({name: "Modify" for name in new if name in old and new[name] != old[name]})
    actions.update({name: "Remove" for name in old if name not in new})
    return [Change(action, name, kinds[name]) for name, action in actions.items()]
