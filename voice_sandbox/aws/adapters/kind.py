"""Format of a row: the calls that create, change and delete a resource type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pydantic import ConfigDict, ImportString
from pydantic.dataclasses import dataclass

from voice_sandbox.aws.adapters.adapter import Adapter

_STRICT_CONFIG = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT_CONFIG)
class SeparateProperty:
    """A property with a call of its own. A create operation that accepts the property sets it directly.

    Attributes:
        put: Operation that sets the property.
        argument: The operation's argument for the value; empty if the value contains the arguments.
        remove: Operation that removes the value.
        default: Value to set when the property is removed. With neither `remove` nor `default`, the previous value
            remains.
    """

    put: str
    argument: str = ""
    remove: str = ""
    default: Any = None


@dataclass(frozen=True, config=_STRICT_CONFIG)
class MemberList:
    """A list whose items are added and removed individually. An item that is an object contains the call's arguments.

    Attributes:
        add: Operation that adds an item.
        remove: Operation that removes an item.
        argument: Argument for an item in both operations.
        hold: Whether items prevent the deletion of the resource, and are therefore removed first.
    """

    add: str
    remove: str
    argument: str
    hold: bool = False


@dataclass(frozen=True, config=_STRICT_CONFIG)
class ResourceKind:
    """A row, which describes a resource type in terms of the service API. Operations have their boto3 names.

    An operation receives the properties under their names in the template, which are matched case-insensitively.
    Strings with braces are formatted with `str.format`: with the properties, `id`, `account`, `region`, `unique` (a new
    name) and, where documented, a response.

    Attributes:
        service: boto3's name of the service.
        create: Operation that creates the resource; empty if the resource is only updated or configured.
        id: Physical id, which is the value of `Ref`, from the properties and the response to `create`; the default is
            the property `name`.
        update: Operation that updates the resource. Without one, a change that no other call can make replaces the
            resource.
        delete: Operation that deletes the resource; empty if there is none.
        key: Argument with the physical id that identifies the resource in operations.
        location: Additional identifying properties. Each operation receives those that it accepts.
        name: Property with the resource's name, which is generated if a template omits it.
        limit: Maximum length of a generated name.
        lower: Whether generated names are lower case.
        recreated: Whether a change deletes and recreates the resource because no operation can update it, although
            CloudFormation does not consider this a replacement.
        rename: Properties with another name in the API.
        defaults: Values of properties that a template omits.
        ignored: Properties that have no effect here, or only on the deletion.
        settings: Properties with calls of their own.
        members: Lists whose items are added and removed individually.
        moves: Lists for which `update` has two arguments, for added and removed items.
        patches: Paths of properties for patch operations of `update`.
        always: Constant arguments of operations.
        arn: ARN that identifies the resource in tag calls; the default is the physical id.
        read: Operation that describes the resource, and its argument for the physical id.
        attributes: Attributes for `Fn::GetAtt`, also from the response to `read`.
        live: Operation that returns the actual resource, its argument for the physical id, and the path of the resource
            in the response (the first item of a list). Drift detection skips types without one.
        own_properties: Properties that the type's class changes.
        adapter: Dotted name of the class that executes the row.
    """

    service: str
    create: str = ""
    id: str = ""
    update: str = ""
    delete: str = ""
    key: str = ""
    location: tuple[str, ...] = ()
    name: str = ""
    limit: int = 128
    lower: bool = False
    recreated: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    settings: Mapping[str, SeparateProperty] = field(default_factory=dict)
    members: Mapping[str, MemberList] = field(default_factory=dict)
    moves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    patches: Mapping[str, str] = field(default_factory=dict)
    always: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    arn: str = "{id}"
    read: tuple[str, str] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    live: tuple[str, str, str] | None = None
    own_properties: tuple[str, ...] = ()
    adapter: ImportString[type[Adapter]] = Adapter
