"""Stacks and their resources, as CloudFormation describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from moto.cloudformation.models import Event
from moto.core.utils import utcnow

from voice_sandbox.aws.adapters.adapter import Adapter, Properties
from voice_sandbox.aws.cloudformation.template import TemplateError
from voice_sandbox.aws.shapes import Json


@dataclass
class Resource:
    """A deployed resource of a stack.

    Attributes:
        adapter: Manages the resource through its service; contains its physical id and its properties.
        has_explicit_name: Whether the template sets the resource's name.
        dependencies: Logical ids of the resources that this one refers to.
        body: The resource's part of the template, for its deletion policies.
        status: CloudFormation's status of the resource.
        reason: Reason for the status.
        timestamp: Time of the status.
        is_imported: Whether the resource existed before the stack, so that a rollback does not delete it.
        drift: Description of the last drift detection; empty before the first detection and after a change.
    """

    adapter: Adapter
    has_explicit_name: bool
    dependencies: set[str]
    body: Mapping[str, Any]
    status: str = ""
    reason: str | None = None
    timestamp: datetime = field(default_factory=utcnow)
    is_imported: bool = False
    drift: dict[str, Any] = field(default_factory=dict)
    _attributes: Mapping[str, Any] | None = None

    @property
    def logical_id(self) -> str:
        """Name in the template."""
        return self.adapter.scope.logical_id

    @property
    def physical_id(self) -> str:
        """Value of `Ref`."""
        return self.adapter.id

    @property
    def resource_type(self) -> str:
        return str(self.body["Type"])

    def get_attribute(self, name: str) -> Json:
        """Return the value of `Fn::GetAtt`.

        Raises:
            TemplateError: The type has no such attribute.
        """
        if self._attributes is None:
            self._attributes = self.adapter.get_attributes()
        try:
            return self._attributes[name]
        except KeyError as error:
            raise TemplateError(
                f"Template error: resource {self.logical_id} ({self.resource_type}) does not support attribute type "
                f"{name} in Fn::GetAtt (known here: {', '.join(sorted(self._attributes)) or 'none'})"
            ) from error

    def record_properties(self, properties: Properties) -> None:
        """Record the current properties of the resource."""
        self.adapter.properties = properties
        self._attributes = None
        self.drift = {}


@dataclass
class Stack:
    """A stack, with the attributes that moto's responses and serializers read."""

    stack_id: str
    name: str
    region_name: str
    account_id: str
    template: str = ""
    template_dict: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    resolved_parameters: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    notification_arns: list[str] = field(default_factory=list)
    role_arn: str | None = None
    timeout_in_minutes: int | None = None
    policy: str = ""
    enable_termination_protection: bool = False
    disable_rollback: bool = False
    status: str = "REVIEW_IN_PROGRESS"
    stack_status_reason: str | None = None
    creation_time: datetime = field(default_factory=utcnow)
    last_updated_time: datetime | None = None
    deletion_time: datetime | None = None
    change_set_id: str | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    undeleted_resources: list[Resource] = field(
        default_factory=list
    )  # new resources of an update whose rollback failed
    outputs: list[dict[str, Any]] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    drift_information: dict[str, Any] = field(default_factory=lambda: {"StackDriftStatus": "NOT_CHECKED"})

    @property
    def description(self) -> str | None:
        """The template's description."""
        return self.template_dict.get("Description")

    @property
    def stack_parameters(self) -> dict[str, str]:
        """The given parameters, with the template's defaults for the others."""
        declared = self.template_dict.get("Parameters", {})
        return {name: self.parameters.get(name, body.get("Default")) for name, body in declared.items()}

    @property
    def parameter_list(self) -> list[dict[str, Any]]:
        """The parameters in the format of DescribeStacks."""
        declared = self.template_dict.get("Parameters", {})
        descriptions = []
        for name, value in self.stack_parameters.items():
            hidden = str(declared[name].get("NoEcho", "")).lower() == "true"
            entry: dict[str, str | None] = {"ParameterKey": name, "ParameterValue": "****" if hidden else value}
            if declared[name].get("Type", "").startswith("AWS::SSM::"):
                resolved = self.resolved_parameters.get(name)
                entry["ResolvedValue"] = ",".join(resolved) if isinstance(resolved, list) else resolved
            descriptions.append(entry)
        return descriptions

    class Meta:
        """Configuration for moto's serializer."""

        serialization_aliases: ClassVar[dict[str, str]] = {"Parameters": "parameter_list"}

    def record_template(
        self,
        body: str,
        template: dict[str, Any],
        parameters: dict[str, str],
        resolved: dict[str, Any],
        tags: dict[str, str] | None,
    ) -> None:
        """Record the current template and parameters of the stack."""
        self.template, self.template_dict = body, template
        self.parameters, self.resolved_parameters = parameters, resolved
        if tags is not None:
            self.tags = tags

    def remove_deleted_resources(self) -> None:
        """Remove deleted resources, so that another deletion only processes the remaining ones."""

        def remains(item: Resource) -> bool:
            return item.status not in {"DELETE_COMPLETE", "DELETE_SKIPPED"} and not item.is_imported

        self.resources = {name: item for name, item in self.resources.items() if remains(item)}
        self.undeleted_resources = [item for item in self.undeleted_resources if remains(item)]

    def set_status(self, status: str, reason: str | None = None) -> None:
        """Set the stack's status, and add an event."""
        self.status, self.stack_status_reason = status, reason
        self._add_event(self.name, self.stack_id, "AWS::CloudFormation::Stack", status, reason)

    def set_resource_status(self, resource: Resource, status: str, reason: str | None = None) -> None:
        """Set a resource's status, and add an event."""
        resource.status, resource.reason, resource.timestamp = status, reason, utcnow()
        self._add_event(resource.logical_id, resource.physical_id, resource.resource_type, status, reason)

    def _add_event(
        self, logical_id: str, physical_id: str, resource_type: str, status: str, reason: str | None
    ) -> None:
        event = Event(
            stack_id=self.stack_id,
            stack_name=self.name,
            logical_resource_id=logical_id,
            physical_resource_id=physical_id,
            resource_type=resource_type,
            resource_status=status,
            resource_status_reason=reason,
            resource_properties=None,
        )
        self.events.append(event)
        event.sendToSns(self.account_id, self.region_name, self.notification_arns)
