"""Access to synthesized templates: resources of a type, and text of intrinsic functions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from voice_userdata import unpack_script

Template = dict[str, Any]
Templates = Mapping[str, Template]
"""By tier: ``network``, ``vad``, ..."""


class Resource(NamedTuple):
    """A resource and its position."""

    tier: str
    logical_id: str
    properties: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.tier}/{self.logical_id}"


def resources_by_type(templates: Templates, kind: str) -> Iterator[Resource]:
    """Yield every resource of a type such as ``EC2::SecurityGroup``."""
    for tier, template in templates.items():
        for logical_id, resource in template["Resources"].items():
            if resource["Type"] == f"AWS::{kind}":
                yield Resource(tier, logical_id, resource.get("Properties", {}))


def properties_by_type(templates: Templates, kind: str) -> list[dict[str, Any]]:
    """Return the properties of every resource of a type; they can be changed in place."""
    return [resource.properties for resource in resources_by_type(templates, kind)]


def text(value: object) -> str:
    """Return a value as text, with ``<...>`` for values that are known only at deployment.

    It never contains a quote.
    """
    match value:
        case str():
            return value
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(map(text, parts))
        case {"Fn::Base64": inner}:
            return unpack_script(text(inner))
        case {"Ref": str(name)} | {"Fn::ImportValue": str(name)}:
            return f"<{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{name}.{attribute}>"
        case dict():
            return f"<{next(iter(value))}>"
        case _:
            return json.dumps(value)


def origin(templates: Templates, tier: str, value: object) -> tuple[str, str] | None:
    """Return tier and logical id of a reference's target; exports of other stacks are resolved."""
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), _]}:
            return tier, name
        case {"Fn::ImportValue": str(export)}:
            for exporter, template in templates.items():
                for output in template.get("Outputs", {}).values():
                    if output.get("Export", {}).get("Name") == export:
                        return origin(templates, exporter, output["Value"])
    return None
