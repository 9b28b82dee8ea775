"""Deployment of a template to a stack."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from voice_sandbox.aws.adapters.adapter import Properties, ResourceScope
from voice_sandbox.aws.adapters.kind import ResourceKind
from voice_sandbox.aws.adapters.table import RESOURCE_KINDS
from voice_sandbox.aws.clients import get_client
from voice_sandbox.aws.cloudformation import faults
from voice_sandbox.aws.cloudformation.functions import Evaluator
from voice_sandbox.aws.cloudformation.removal import RETAIN_POLICIES, delete_resources
from voice_sandbox.aws.cloudformation.stack import Resource, Stack
from voice_sandbox.aws.cloudformation.template import TemplateError, find_dependencies, sort_by_dependency
from voice_sandbox.aws.cloudformation.values import resolve_dynamic_references
from voice_sandbox.aws.shapes import Json


class DeploymentError(Exception):
    """A resource or an output could not be updated to match the template."""


class Deployment:
    """Processes a template's resources in dependency order.

    Attributes:
        superseded: Replaced resources, which are kept until the deployment has succeeded.
        rolls_back: Whether this is a rollback. Alarms cannot stop an instance refresh during a rollback, since the
            alarm that caused it is still active.
        imports: Names of other stacks' exports that the template reads.
        stacks: All stacks; the names of their resources are in use.
        imports_existing: Whether resources without a stack can be imported.
    """

    def __init__(
        self,
        stack: Stack,
        template: dict[str, Any],
        resolved: Mapping[str, Any],
        exports: Mapping[str, Any],
        *,
        rolls_back: bool = False,
        stacks: Collection[Stack] = (),
        imports_existing: bool = False,
    ) -> None:
        self.stack = stack
        self.template = template
        self.exports = exports
        self.rolls_back = rolls_back
        self.stacks = stacks
        self.imports_existing = imports_existing
        self.superseded: list[Resource] = []
        self.imports: set[str] = set()
        pseudo = {
            "AWS::AccountId": stack.account_id,
            "AWS::NotificationARNs": stack.notification_arns,
            "AWS::Partition": "aws",
            "AWS::Region": stack.region_name,
            "AWS::StackId": stack.stack_id,
            "AWS::StackName": stack.name,
            "AWS::URLSuffix": "amazonaws.com",
        }
        self.evaluator = Evaluator(
            template=template,
            parameters={**pseudo, **resolved},
            resolve_resource=lambda name: self._get_deployed_resource(name).physical_id,
            resolve_attribute=lambda name, attribute: self._get_deployed_resource(name).get_attribute(attribute),
            import_value=self._resolve_imported_value,
            list_zones=self._list_zones,
        )

    def apply(self) -> None:
        """Create, change and replace resources until they match the template.

        Raises:
            DeploymentError: A resource fails; the message contains the service's reason.
        """
        bodies = self.template["Resources"]
        needs = find_dependencies(bodies)
        for name in sort_by_dependency(needs):
            if self._is_enabled(bodies[name]):
                self._apply_resource(name, bodies[name], needs[name])

    def resolve_outputs(self) -> list[dict[str, Any]]:
        """Return the stack's outputs."""
        results = []
        for key, body in (self.template.get("Outputs") or {}).items():
            if not self._is_enabled(body):
                continue
            try:
                results.append(
                    {
                        "OutputKey": key,
                        "OutputValue": self.evaluator.evaluate(body["Value"]),
                        "Description": body.get("Description"),
                        "ExportName": self.evaluator.evaluate(body.get("Export", {}).get("Name")),
                    }
                )
            except TemplateError as error:
                raise DeploymentError(f"Output {key}: {error}") from error
        return results

    def pop_unwanted_resources(self) -> list[Resource]:
        """Remove and return the resources that the template no longer contains."""
        bodies = self.template["Resources"]
        removed = [name for name in self.stack.resources if name not in bodies or not self._is_enabled(bodies[name])]
        return [self.stack.resources.pop(name) for name in removed]

    def _is_enabled(self, body: Mapping[str, Any]) -> bool:
        return "Condition" not in body or self.evaluator.evaluate_condition(body["Condition"])

    def _apply_resource(self, name: str, body: Mapping[str, Any], needs: set[str]) -> None:
        """Create, change, replace or keep one resource."""
        current = self.stack.resources.get(name)
        scope = ResourceScope(self.stack.account_id, self.stack.region_name, self.stack.name, self.stack.stack_id, name)
        kind = RESOURCE_KINDS[body["Type"]]
        target = Resource(
            kind.adapter(body["Type"], kind, scope), has_explicit_name=False, dependencies=needs, body=body
        )
        verb, failed = ("UPDATE", current) if current else ("CREATE", target)
        try:
            properties = self.evaluator.evaluate(body.get("Properties", {}))
            target.has_explicit_name = kind.name in properties
            if kind.name and not target.has_explicit_name:
                properties[kind.name] = (
                    current.adapter.properties[kind.name]
                    if current and not current.has_explicit_name
                    else target.adapter.generate_name()
                )
            if current is None and self._can_import(target, properties):
                self._import(target, properties)
                return
            if current is None:
                self._create(target, properties, None)
                return
            if not current.adapter.must_replace(properties):
                self._update(current, target, properties)
                return
            verb, failed = "CREATE", target
            self._create(target, _assign_new_name(target, current, properties), current)
        except Exception as error:
            self.stack.set_resource_status(failed, f"{verb}_FAILED", str(error))
            raise DeploymentError(f"The following resource(s) failed to {verb.lower()}: [{name}]. {error}") from error

    def _create(self, target: Resource, properties: Properties, current: Resource | None) -> None:
        adapter = target.adapter
        self.stack.set_resource_status(target, "CREATE_IN_PROGRESS")
        if owner := self._find_owner(target, properties):
            raise TemplateError(
                f"{adapter.predict_physical_id(properties)} already exists in stack {owner.stack_id}. "
                f"Give {target.logical_id} ({target.resource_type}) another name or version."
            )
        try:
            faults.raise_for_injected_fault(self.stack.name, target.logical_id)
            adapter.create(self._resolve_properties(properties))
        except Exception:
            if adapter.id:
                target.record_properties(properties)
                delete_resources(self.stack, [target], keep=frozenset())
            raise
        target.record_properties(properties)
        if current is not None:
            self.superseded.append(current)
        self.stack.resources[target.logical_id] = target
        self.stack.set_resource_status(target, "CREATE_COMPLETE")

    def _can_import(self, target: Resource, properties: Properties) -> bool:
        """Return True if automatic import applies to an existing resource that belongs to no stack."""
        if not self.imports_existing or not is_importable(target.body, target.adapter.kind):
            return False
        return self._find_owner(target, properties) is None and target.adapter.adopt_existing(properties)

    def _find_owner(self, target: Resource, properties: Properties) -> Stack | None:
        """Return the stack whose resource would be overwritten by creating one with these properties, if any."""
        if (expected := target.adapter.predict_physical_id(properties)) is None:
            return None
        for stack in self.stacks:
            for each in (
                *stack.resources.values(),
                *stack.undeleted_resources,
                *(self.superseded if stack is self.stack else ()),
            ):
                if each.physical_id == expected and each.adapter.shares_identity(target.adapter, properties):
                    return stack
        return None

    def _import(self, target: Resource, properties: Properties) -> None:
        """Import an existing resource into the stack unchanged; differences from the template are drift."""
        self.stack.set_resource_status(target, "IMPORT_IN_PROGRESS")
        target.is_imported = True
        target.record_properties(properties)
        self.stack.resources[target.logical_id] = target
        self.stack.set_resource_status(target, "IMPORT_COMPLETE")

    def _update(self, current: Resource, target: Resource, properties: Properties) -> None:
        current.body, current.dependencies, current.has_explicit_name = (
            target.body,
            target.dependencies,
            target.has_explicit_name,
        )
        if properties == current.adapter.properties:
            return
        self.stack.set_resource_status(current, "UPDATE_IN_PROGRESS")
        before = current.adapter.properties
        current.adapter.update_policy = self._resolve_update_policy(target.body)
        try:
            current.adapter.change(self._resolve_properties(properties))
        except Exception:
            # Some calls of a failed update may have succeeded, and are reverted as far as possible.
            current.record_properties(properties)
            current.adapter.update_policy = {}
            with suppress(Exception):
                current.adapter.change(self._resolve_properties(before))
            current.record_properties(before)
            raise
        current.record_properties(properties)
        self.stack.set_resource_status(current, "UPDATE_COMPLETE")

    def _resolve_update_policy(self, body: Mapping[str, Any]) -> Properties:
        policy: Properties = self.evaluator.evaluate(body.get("UpdatePolicy", {}))
        if self.rolls_back and (refresh := policy.get("AutoScalingInstanceRefresh")):
            preferences = {name: item for name, item in refresh["Preferences"].items() if name != "AlarmSpecification"}
            return {"AutoScalingInstanceRefresh": {**refresh, "Preferences": preferences}}
        return policy

    def _resolve_properties(self, properties: Properties) -> Properties:
        resolved: Properties = resolve_dynamic_references(
            properties, region=self.stack.region_name, account=self.stack.account_id
        )
        return resolved

    def _get_deployed_resource(self, name: str) -> Resource:
        body = self.template["Resources"].get(name)
        # A resource that this update removes still exists, but must not be referenced.
        if body is None or not self._is_enabled(body) or name not in self.stack.resources:
            raise TemplateError(f"Template format error: Unresolved resource dependencies [{name}]")
        return self.stack.resources[name]

    def _resolve_imported_value(self, name: str) -> Json:
        self.imports.add(name)
        if name not in self.exports:
            raise TemplateError(f"No export named {name} found.")
        return self.exports[name].value

    def _list_zones(self, region: str) -> list[str]:
        api: Any = get_client("ec2", region=region, account=self.stack.account_id)
        return sorted(zone["ZoneName"] for zone in api.describe_availability_zones()["AvailabilityZones"])


def _assign_new_name(target: Resource, current: Resource, properties: Properties) -> Properties:
    """Return properties with a new name, so that a resource can be created while its predecessor still exists."""
    key = target.adapter.kind.name
    if not key:
        return properties
    name = properties[key]
    if target.has_explicit_name and current.adapter.properties.get(key) == name:
        raise TemplateError(
            "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
            f"Rename {name} and update the stack again."
        )
    return properties if target.has_explicit_name else {**properties, key: target.adapter.generate_name()}


def is_importable(body: Mapping[str, Any], kind: ResourceKind) -> bool:
    """Return True if automatic import applies to a resource.

    The template must contain the resource's name as a literal, and the deletion policy must retain the resource.

    Source: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/import-resources-automatically.html
    """
    name = body.get("Properties", {}).get(kind.name) if kind.name else None
    return isinstance(name, str) and body.get("DeletionPolicy") in RETAIN_POLICIES
