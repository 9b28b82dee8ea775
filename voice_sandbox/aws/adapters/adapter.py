"""Adapters that create, change and delete a resource as described by the table's row for its type."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from botocore.model import ListShape, Shape
from botocore.parsers import ResponseParserError

from voice_sandbox.aws.adapters.schemas import list_create_only_paths, list_naming_properties
from voice_sandbox.aws.adapters.tagging import TAG_OPERATIONS
from voice_sandbox.aws.clients import get_client
from voice_sandbox.aws.shapes import Json, conform_to_shape, find_member_name

if TYPE_CHECKING:
    from voice_sandbox.aws.adapters.kind import MemberList, ResourceKind, SeparateProperty

Properties = dict[str, Any]


@dataclass(frozen=True)
class ResourceScope:
    """Account, region, stack and logical id of a resource."""

    account: str
    region: str
    stack_name: str
    stack_id: str
    logical_id: str


class Adapter:
    """A resource that is managed through the API of its service.

    For a type that a row cannot fully describe, a subclass overrides methods: `translate` for properties that differ in
    the API, `configure` for additional calls, `build_identifying_arguments` and `get_attributes` for its identifying
    arguments and its attributes.

    Attributes:
        resource_type: The CloudFormation type.
        kind: The table's row for the type.
        id: Physical id, which is the value of `Ref`; empty until the resource exists.
        properties: Deployed properties; None until the resource exists. Secrets remain references.
        update_policy: The template's `UpdatePolicy` attribute, for the next change.
    """

    def __init__(self, resource_type: str, kind: ResourceKind, scope: ResourceScope) -> None:
        self.resource_type = resource_type
        self.kind = kind
        self.scope = scope
        self.id = ""
        self.properties: Properties = {}
        self.update_policy: Properties = {}

    def create(self, properties: Properties) -> None:
        """Create the resource. It exists as soon as it has an id, even if a later call fails."""
        kind, properties = self.kind, self._to_api_properties(properties)
        separate = self._list_separate_properties()
        given = {
            key: value
            for key, value in properties.items()
            if key not in separate or self.accepts_argument(kind.create, key)
        }
        answer = self.call(kind.create, self._convert_tags(given)) if kind.create else {}
        try:
            self.id = self._format_template(kind.id or f"{{{kind.name}}}", {**properties, **answer})
        except LookupError as error:
            raise ValueError(f"{self.resource_type}: {kind.create} created no resource: {answer}") from error
        if not kind.create:
            given = {}
            self._update({}, properties)
        if kind.service in TAG_OPERATIONS and "Tags" not in given:
            self.update_tags({}, convert_tags_to_map(properties))
        self.configure(given, properties)

    def change(self, new: Properties) -> None:
        """Update the resource to new properties."""
        if self.kind.recreated:
            self.delete()
            self.create(new)
            return
        before, after = self._to_api_properties(self.properties), self._to_api_properties(new)
        if self.kind.service in TAG_OPERATIONS:
            self.update_tags(convert_tags_to_map(before), convert_tags_to_map(after))
        self._update(before, after)
        self.configure(before, after)

    def delete(self) -> None:
        """Delete any members that would prevent the deletion of the resource, then the resource itself."""
        properties = self.translate(self.properties)
        for key, members in self.kind.members.items():
            if members.hold:
                self._update_members(members, key, properties, omit_keys(properties, key))
        if self.kind.delete:
            self.call_on_resource(self.kind.delete, properties)

    def take_snapshot(self) -> None:
        """Save the resource's data before the resource is deleted. Only types with snapshots support this."""
        raise NotImplementedError(f"{self.resource_type}: this type has no snapshots")

    def get_attributes(self) -> Mapping[str, Any]:
        """Return the attributes for `Fn::GetAtt`; names of nested attributes contain dots."""
        read = self.kind.read
        answer = self.call(read[0], {read[1]: self.id}) if read else {}
        values = {**self.properties, **answer}
        return {name: self._format_template(text, values) for name, text in self.kind.attributes.items()}

    def compare_with_actual(self, attached: Sequence[Adapter]) -> dict[str, tuple[Json, Json]] | None:  # noqa: ARG002
        """Return the desired and the actual value of each property that the service returns.

        Return None if the resource no longer exists.

        Args:
            attached: Resources of the stack that refer to this one.
        """
        if self.kind.live is None:
            raise NotImplementedError(f"{self.resource_type}: the local AWS cannot read this type")
        operation, argument, path = self.kind.live
        state: Json = self.call_on_resource(operation, self.properties, {argument: self.id})
        shape = self._find_output_shape(operation)
        for part in path.split(".") if path else ():
            state, shape = state.get(part), shape.members[part]
            if isinstance(shape, ListShape):
                state, shape = state[0] if state else None, shape.member
            if not state:
                return None
        pairs = {}
        for key, value in self._to_api_properties(self.properties).items():
            name = find_member_name(shape, key)
            if name is not None and "{{resolve:" not in json.dumps(value):
                pairs[key] = (conform_to_shape(shape.members[name], value, key), state.get(name))
        expected_name, actual_name = pairs.get(self.kind.name, ("", ""))
        return pairs if expected_name == actual_name else None  # a read call may match a prefix of another name

    def adopt_existing(self, properties: Properties) -> bool:
        """Manage an existing resource with this name. Return True if the service has one.

        A resource whose type has no read call is assumed not to exist; creating it then fails.
        """
        if self.kind.live is None:
            return False
        self.id, self.properties = str(properties[self.kind.name]), properties
        try:
            is_present = self.compare_with_actual(()) is not None
        except ClientError as error:
            if not is_not_found_error(error):
                raise
            is_present = False
        if not is_present:
            self.id, self.properties = "", {}
        return is_present

    def predict_physical_id(self, properties: Properties) -> str | None:
        """Return the physical id that a resource with these properties has, or None if its service generates it."""
        scope = {"account": self.scope.account, "region": self.scope.region}
        try:
            return (self.kind.id or f"{{{self.kind.name}}}").format(**{**scope, **self._to_api_properties(properties)})
        except LookupError:
            return None

    def shares_identity(self, other: Adapter, properties: Properties) -> bool:
        """Return True if a resource with these properties and the same physical id is the same resource to the service.

        This is the case if one call deletes both, and if all properties that identify them are equal.
        """
        calls = [(each.kind.service, each.kind.delete) for each in (self, other)]
        own, others = (
            [values.get(key) for key in list_naming_properties(each.resource_type)]
            for each, values in ((self, self.properties), (other, properties))
        )
        return calls[0] == calls[1] and own == others

    def translate(self, properties: Properties) -> Properties:
        """Convert the properties in a template to the format of the API."""
        renamed = {self.kind.rename.get(key, key): value for key, value in properties.items()}
        missing = self.kind.defaults.keys() - renamed.keys()
        return renamed | {key: self._format_template(self.kind.defaults[key], properties) for key in missing}

    def configure(self, before: Properties, after: Properties) -> None:
        """Update the settings and members that differ between two sets of properties.

        Args:
            before: Current properties of the resource; directly after its creation, those that the create call has set.
            after: New properties.
        """
        for key, setting in self.kind.settings.items():
            if before.get(key) != after.get(key):
                self._apply_setting(setting, key, after)
        for key, members in self.kind.members.items():
            self._update_members(members, key, before, after)

    def build_identifying_arguments(self, properties: Properties) -> dict[str, Any]:
        """Return the arguments that identify the resource in operations."""
        location = select_keys(properties, *self.kind.location)
        return {**location, self.kind.key: self.id} if self.kind.key else location

    def must_replace(self, new: Properties) -> bool:
        """Return True if new properties require a new resource.

        They do if CloudFormation's schema requires a replacement, or if the row has no call that can make the change.
        """
        old = self.properties
        if not all(self._can_change(key) for key in find_changed_keys(old, new)):
            return True
        return any(
            _get_value_at_path(old, path) != _get_value_at_path(new, path)
            for path in list_create_only_paths(self.resource_type)
        )

    def accepts_argument(self, operation: str, name: str) -> bool:
        """Return True if an operation accepts an argument."""
        return bool(operation) and find_member_name(self._find_input_shape(operation), name) is not None

    def call_on_resource(
        self, operation: str, properties: Properties, arguments: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Call an operation on this resource.

        The call contains the given arguments, and those identifying arguments that the operation accepts.
        """
        address = {
            key: value
            for key, value in self.build_identifying_arguments(properties).items()
            if self.accepts_argument(operation, key)
        }
        return self.call(operation, arguments or {}, address)

    def call(self, operation: str, /, *properties: Mapping[str, Any], **extra: Json) -> dict[str, Any]:
        """Call an operation in the type's service with properties in the API format.

        Args:
            operation: boto3's name of the operation.
            properties: Properties to pass on.
            extra: Additional arguments, which override the properties.

        Raises:
            ClientError: The service rejects the call.
            NotImplementedError: moto does not support the operation, or fails to execute it.
        """
        always = self.kind.always.get(operation, {}).items()
        arguments = {
            key: self._format_template(value, {}) if isinstance(value, str) else value for key, value in always
        }
        for values in (*properties, extra):
            arguments.update(values)
        shape = self._find_input_shape(operation)
        if shape is not None:
            arguments = conform_to_shape(shape, arguments, self.resource_type)
        try:
            result: dict[str, Any] = getattr(self._get_client(), operation)(**arguments)
        except (ClientError, ResponseParserError) as error:
            if isinstance(error, ResponseParserError) or str(error.response["Error"]["Code"]) == "500":
                raise NotImplementedError(
                    f"{self.resource_type}: moto failed to execute {self.kind.service}.{operation}; "
                    "the server's log contains the reason"
                ) from error
            raise
        return result

    def update_tags(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Change the resource's tags from the first map to the second."""
        calls = TAG_OPERATIONS[self.kind.service]
        if removed := sorted(before.keys() - after.keys()):
            keys = [{"Key": key} for key in removed] if calls.keys == calls.tags else removed
            self.call(
                calls.untag, calls.constant_arguments, {calls.resource: self.get_tag_resource_id(), calls.keys: keys}
            )
        if new := {key: value for key, value in after.items() if before.get(key) != value}:
            self.call(
                calls.tag,
                calls.constant_arguments,
                {calls.resource: self.get_tag_resource_id(), calls.tags: calls.to_list(new)},
            )

    def get_tag_resource_id(self) -> str:
        """Return the resource identifier that the service's tag calls use."""
        return self._format_template(self.kind.arn, self.properties)

    def generate_name(self) -> str:
        """Generate a name as CloudFormation does: stack, logical id and twelve random characters."""
        suffix = "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(12))
        stem = f"{self.scope.stack_name}-{self.scope.logical_id}"[: self.kind.limit - 13].rstrip("-")
        name = f"{stem}-{suffix}"
        return name.lower() if self.kind.lower else name

    def build_patch_operations(self, before: Properties, after: Properties) -> list[dict[str, str]]:
        """Return the patch operations that change properties from one state to the other."""
        return build_patch(before, after, self.kind.patches)

    def _update(self, before: Properties, after: Properties) -> None:
        kind = self.kind
        if not kind.update:
            return
        if self.accepts_argument(kind.update, "patchOperations"):
            arguments: Properties = {"patchOperations": self.build_patch_operations(before, after)}
            if not arguments["patchOperations"]:
                return
        else:
            separate = self._list_separate_properties()
            if not find_changed_keys(before, after) - separate:
                return
            arguments = {
                key: value
                for key, value in after.items()
                if key not in separate and self.accepts_argument(kind.update, key)
            }
            for key, (add, remove) in kind.moves.items():
                current, desired = set(before.get(key, [])), set(after.get(key, []))
                arguments_by_name = {add: sorted(desired - current), remove: sorted(current - desired)}
                arguments |= {name: items for name, items in arguments_by_name.items() if items}
        self.call_on_resource(kind.update, after, arguments)

    def _apply_setting(self, setting: SeparateProperty, key: str, properties: Properties) -> None:
        value = properties.get(key, setting.default)
        if value is not None:
            self.call_on_resource(setting.put, properties, {setting.argument: value} if setting.argument else value)
        elif setting.remove:
            self.call_on_resource(setting.remove, properties)

    def _update_members(self, members: MemberList, key: str, before: Properties, after: Properties) -> None:
        def name(item: Json) -> Json:
            return item[members.argument] if isinstance(item, Mapping) else item

        current, desired = before.get(key, []), after.get(key, [])
        desired_names = [name(item) for item in desired]
        for item in current:
            if name(item) not in desired_names:
                self.call_on_resource(members.remove, after, {members.argument: name(item)})
        for item in desired:
            if item not in current:
                self.call_on_resource(
                    members.add, after, item if isinstance(item, Mapping) else {members.argument: item}
                )

    def _can_change(self, key: str) -> bool:
        kind, name = self.kind, self.kind.rename.get(key, key)
        named = (kind.settings, kind.members, kind.moves, kind.patches, kind.own_properties, kind.ignored)
        return (
            kind.recreated
            or (key == "Tags" and kind.service in TAG_OPERATIONS)
            or any(name in group for group in named)
            or self.accepts_argument(kind.update, name)
        )

    def _list_separate_properties(self) -> set[str]:
        """Return the properties that have calls of their own, and that other operations therefore need not accept."""
        kind = self.kind
        tags = {"Tags"} if kind.service in TAG_OPERATIONS else set()
        return {*kind.settings, *kind.members, *kind.own_properties} | tags

    def _to_api_properties(self, properties: Properties) -> Properties:
        return omit_keys(self.translate(properties), *self.kind.ignored)

    def _format_template(self, text: str, values: Mapping[str, Any]) -> str:
        scope_values = {"account": self.scope.account, "region": self.scope.region, "unique": self.generate_name()}
        return text.format(**{"id": self.id, **scope_values, **values})

    def _convert_tags(self, properties: Properties) -> Properties:
        if "Tags" in properties and self.kind.service in TAG_OPERATIONS:
            return {**properties, "Tags": TAG_OPERATIONS[self.kind.service].to_list(convert_tags_to_map(properties))}
        return properties

    def _get_client(self) -> Any:
        return get_client(self.kind.service, region=self.scope.region, account=self.scope.account)

    def _find_input_shape(self, operation: str) -> Shape | None:
        meta = self._get_client().meta
        shape: Shape | None = meta.service_model.operation_model(meta.method_to_api_mapping[operation]).input_shape
        return shape

    def _find_output_shape(self, operation: str) -> Any:
        meta = self._get_client().meta
        return meta.service_model.operation_model(meta.method_to_api_mapping[operation]).output_shape


def build_patch(before: Mapping[str, Any], after: Mapping[str, Any], paths: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the patch operations that change properties from one state to the other.

    Args:
        before: Properties before the change.
        after: Properties after the change.
        paths: Path of each property that can be patched.
    """
    new = {name: after.get(name, "") for name in paths if before.get(name) != after.get(name)}
    return [
        {"op": "replace", "path": paths[name], "value": value if isinstance(value, str) else json.dumps(value)}
        for name, value in new.items()
    ]


def find_changed_keys(old: Properties, new: Properties) -> set[str]:
    """Return the names of the properties that differ."""
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def convert_tags_to_map(properties: Properties) -> dict[str, str]:
    """Return a resource's tags as a map. A template contains either a map or a list of keys and values."""
    tags = properties.get("Tags") or {}
    if isinstance(tags, Mapping):
        return {str(key): str(value) for key, value in tags.items()}
    return {str(tag["Key"]): str(tag["Value"]) for tag in tags}


def select_keys(properties: Properties, *keys: str) -> Properties:
    """Return the named properties that are set."""
    return {key: properties[key] for key in keys if key in properties}


def omit_keys(properties: Properties, *keys: str) -> Properties:
    """Return all properties except the named ones."""
    return {key: value for key, value in properties.items() if key not in keys}


def is_not_found_error(error: ClientError) -> bool:
    """Return True if an API error means that the resource does not exist."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return any(word in code for word in ("NotFound", "NoSuch", "DoesNotExist", "NonExistent"))


def _get_value_at_path(properties: Json, path: list[str]) -> Json:
    for name in path:
        properties = properties.get(name) if isinstance(properties, Mapping) else None
    return properties
