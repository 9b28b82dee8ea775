"""The form of a row of the table: which calls create, change and delete a resource type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pydantic import ConfigDict, ImportString
from pydantic.dataclasses import dataclass

from sandbox.aws.adapters.adapter import Adapter

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class Setting:
    """A property that is set by a call of its own, and by the creation too where that takes it.

    Attributes:
        put: Operation that sets the property.
        argument: The operation's argument for the value; empty if the value is an object of arguments.
        remove: Operation that takes away what was set.
        otherwise: Value to set when the property goes. With neither, what was set stays.
    """

    put: str
    argument: str = ""
    remove: str = ""
    otherwise: Any = None


@dataclass(frozen=True, config=_STRICT)
class Members:
    """A list whose items are added and removed by a call each. An item that is an object is the call's arguments.

    Attributes:
        add: Operation that adds an item.
        remove: Operation that removes an item.
        argument: Argument that names an item in both.
        hold: Whether the items keep the resource from going, and so are removed first.
    """

    add: str
    remove: str
    argument: str
    hold: bool = False


@dataclass(frozen=True, config=_STRICT)
class Kind:
    """A row: a resource type in the terms of its service's API. Operations have boto3's names.

    An operation gets the properties under the names that the template gives them, in any case. Texts in braces are
    filled in, as `str.format` does it, with the properties, `id`, `account`, `region`, `unique` (a new name), and where
    it says so with an answer.

    Attributes:
        service: boto3's name of the service.
        create: Operation that creates the resource; empty if it is only changed, or only configured.
        id: The physical id, which is what `Ref` gives, from the properties and the answer to `create`; by default
            the property `name`.
        update: Operation that changes the resource. Without one, a change for which there is no other call replaces it.
        delete: Operation that deletes the resource; empty if nothing is deleted.
        key: Argument by which operations name the resource; it takes the physical id.
        place: Properties by which operations name it besides. Each operation gets those that it takes.
        name: The property with the resource's name; generated when a template leaves it out.
        limit: The longest name that is generated.
        lower: Whether generated names are lower case.
        anew: Whether a change deletes the resource and creates it again, for want of an operation, without its being
            a replacement for CloudFormation.
        rename: Properties that the API knows under another name.
        defaults: Values of properties that a template leaves out.
        ignored: Properties that change nothing here, or matter to the deletion alone.
        settings: Properties that are set by calls of their own.
        members: Lists whose items are added and removed one by one.
        moves: Lists for which `update` has two arguments, for what is added and what is removed.
        patches: Paths of properties that `update` takes as patch operations.
        always: Arguments that an operation gets in any case.
        arn: The ARN by which the tag calls name the resource; by default the physical id.
        read: Operation that describes the resource, and its argument for the physical id.
        attributes: What `Fn::GetAtt` can read, from the answer to `read` too.
        live: Operation that shows the resource as it is, its argument for the physical id, and where in the answer the
            resource lies (of a list the first item). Types without one are not looked at by drift detection.
        own: Properties that the class of the type changes.
        adapter: The class that carries out the row, by its dotted name.
    """

    service: str
    create: str = ""
    id: str = ""
    update: str = ""
    delete: str = ""
    key: str = ""
    place: tuple[str, ...] = ()
    name: str = ""
    limit: int = 128
    lower: bool = False
    anew: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    members: Mapping[str, Members] = field(default_factory=dict)
    moves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    patches: Mapping[str, str] = field(default_factory=dict)
    always: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    arn: str = "{id}"
    read: tuple[str, str] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    live: tuple[str, str, str] | None = None
    own: tuple[str, ...] = ()
    adapter: ImportString[type[Adapter]] = Adapter
