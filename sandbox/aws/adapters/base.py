"""What an adapter is: how a CloudFormation resource type is created, changed and deleted through its service's API."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from sandbox.aws.adapters.tagging import TAG_CALLS
from sandbox.aws.clients import client
from sandbox.aws.shapes import Json, conform

Properties = dict[str, Any]

ADAPTERS: dict[str, type[Adapter]] = {}


@dataclass(frozen=True)
class Scope:
    """Where a resource lies: account, region, stack and logical id."""

    account: str
    region: str
    stack_name: str
    stack_id: str
    logical_id: str


class Adapter:
    """One resource of a CloudFormation type, reached through the API of its service.

    A subclass names its type and service, and says how to create, update and delete the resource and which attributes
    `Fn::GetAtt` can read. A type without `update` is replaced at every change. Subclasses register themselves.

    Attributes:
        resource_type: The CloudFormation type; empty for a shared base class.
        service: boto3's name of the service.
        name: The property that holds the resource's name; generated when a template leaves it out.
        name_limit: The longest name that the service takes.
        name_lower: Whether generated names are lower case.
        renames: Whether the name can change in place.
        replaced_by: Properties that cannot change in place; a change of them makes a new resource.
        id: The physical id, which is what `Ref` gives; empty until the resource exists.
        properties: The properties as deployed; none until the resource exists. Secrets are left as references.
    """

    resource_type: ClassVar[str] = ""
    service: ClassVar[str]
    name: ClassVar[str] = ""
    name_limit: ClassVar[int] = 128
    name_lower: ClassVar[bool] = False
    renames: ClassVar[bool] = False
    replaced_by: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.id = ""
        self.properties: Properties = {}

    def __init_subclass__(cls) -> None:
        if "resource_type" in cls.__dict__:
            ADAPTERS[cls.resource_type] = cls

    def create(self, properties: Properties) -> str:
        """Create the resource and return its physical id."""
        raise NotImplementedError

    def update(self, new: Properties) -> None:
        """Bring the resource from `properties` to the new ones in place."""
        raise NotImplementedError

    def delete(self) -> None:
        """Delete the resource."""
        raise NotImplementedError

    def snapshot(self) -> None:
        """Save the resource's data before its deletion; only for types that have snapshots."""
        raise NotImplementedError(f"{self.resource_type}: this type has no snapshots")

    def attributes(self) -> Mapping[str, Any]:
        """Return what `Fn::GetAtt` can read; the names of nested attributes hold dots."""
        return {}

    def begin(self, physical_id: str) -> str:
        """Note that the resource exists, so that a later failure of its creation takes it away again."""
        self.id = physical_id
        return physical_id

    def change(self, new: Properties) -> None:
        """Bring the resource to new properties: tags by the service's tag calls, the rest by `update`."""
        changed = changed_keys(self.properties, new)
        if "Tags" in changed and self.service in TAG_CALLS:
            self.retag(tag_map(self.properties), tag_map(new))
            changed = changed - {"Tags"}
        if changed:
            self.update(new)

    @classmethod
    def must_replace(cls, old: Properties, new: Properties) -> bool:
        """Say whether a change from old to new properties needs a new resource."""
        changed = changed_keys(old, new)
        fixed = cls.replaced_by if cls.renames else cls.replaced_by | {cls.name}
        if cls.update is Adapter.update:
            return any(key != "Tags" or cls.service not in TAG_CALLS for key in changed)
        return any(key in fixed for key in changed)

    def call(self, operation: str, /, *properties: Mapping[str, Any], **more: Json) -> dict[str, Any]:
        """Call an operation of the adapter's service with properties in the form its API takes.

        Args:
            operation: boto3's name of the operation.
            properties: Template properties to pass on.
            more: Further arguments; they win over the properties.

        Raises:
            ClientError: If the service refuses.
            NotImplementedError: If moto lacks the operation or breaks down in it.
        """
        api = client(self.service, region=self.scope.region, account=self.scope.account)
        model = api.meta.service_model.operation_model(api.meta.method_to_api_mapping[operation])
        arguments: dict[str, Any] = {}
        for given in (*properties, more):
            arguments.update(given)
        if model.input_shape is not None:
            arguments = conform(model.input_shape, arguments, self.resource_type)
        try:
            result: dict[str, Any] = getattr(api, operation)(**arguments)
        except (ClientError, ResponseParserError) as error:
            if isinstance(error, ResponseParserError) or str(error.response["Error"]["Code"]) == "500":
                raise NotImplementedError(
                    f"{self.resource_type}: moto cannot carry out {self.service}.{operation}; the server's log says why"
                ) from error
            raise
        return result

    def retag(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Bring the resource's tags from one map to the other."""
        calls = TAG_CALLS[self.service]
        target = self.tag_target()
        if gone := sorted(before.keys() - after.keys()):
            keys = [{"Key": key} for key in gone] if calls.keys == calls.tags else gone
            self.call(calls.untag, {calls.resource: target, calls.keys: keys})
        if set_now := {key: value for key, value in after.items() if before.get(key) != value}:
            self.call(calls.tag, {calls.resource: target, calls.tags: as_tags(set_now)})

    def tag_target(self) -> str:
        """Return what the service's tag calls name the resource by: its ARN where it has one."""
        return str(self.attributes().get("Arn", self.id))

    @classmethod
    def generate_name(cls, scope: Scope) -> str:
        """Make up a name as CloudFormation does: stack, logical id and twelve random characters."""
        suffix = "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(12))
        stem = f"{scope.stack_name}-{scope.logical_id}"[: cls.name_limit - 13].rstrip("-")
        name = f"{stem}-{suffix}"
        return name.lower() if cls.name_lower else name


def changed_keys(old: Properties, new: Properties) -> set[str]:
    """Return the names of the properties that differ."""
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def tag_map(properties: Properties) -> dict[str, str]:
    """Return a resource's tags as a map, however the template writes them."""
    tags = properties.get("Tags") or {}
    if isinstance(tags, Mapping):
        return {str(key): str(value) for key, value in tags.items()}
    return {str(tag["Key"]): str(tag["Value"]) for tag in tags}


def as_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return a map as the list of tags that most APIs take."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def only(properties: Properties, *keys: str) -> Properties:
    """Return the named properties that are set."""
    return {key: properties[key] for key in keys if key in properties}


def without(properties: Properties, *keys: str) -> Properties:
    """Return all properties but the named."""
    return {key: value for key, value in properties.items() if key not in keys}


def is_missing(error: ClientError) -> bool:
    """Say whether an API error means that the resource does not exist."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return any(word in code for word in ("NotFound", "NoSuch", "DoesNotExist", "NonExistent"))
