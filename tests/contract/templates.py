"""Reading synthesized templates: resources of a type, and text out of intrinsic functions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Template = dict[str, Any]
Templates = Mapping[str, Template]
"""By tier: ``network``, ``vad``, ..."""

JOIN, GET_ATT, IMPORT, BASE64 = "Fn::Join", "Fn::GetAtt", "Fn::ImportValue", "Fn::Base64"


class Resource(NamedTuple):
    """A resource and where it stands."""

    tier: str
    logical_id: str
    properties: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.tier}/{self.logical_id}"


def of_type(templates: Templates, kind: str) -> Iterator[Resource]:
    """Yield every resource of a type such as ``EC2::SecurityGroup``."""
    for tier, template in templates.items():
        for logical_id, resource in template["Resources"].items():
            if resource["Type"] == f"AWS::{kind}":
                yield Resource(tier, logical_id, resource.get("Properties", {}))


def text(value: Any) -> str:
    """Return a value as text, with ``<...>`` in place of what only a deploy knows."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        return json.dumps(value)
    ((function, argument),) = value.items()
    if function == JOIN:
        separator, parts = argument
        return str(separator).join(map(text, parts))
    if function == BASE64:
        return text(argument)
    return f"<{function} {argument if isinstance(argument, str) else json.dumps(argument)}>".replace('"', "'")


def origin(templates: Templates, tier: str, value: Any) -> tuple[str, str] | None:
    """Return tier and logical id of the resource that a reference leads to, through exports of other stacks."""
    if not isinstance(value, dict):
        return None
    if "Ref" in value:
        return tier, value["Ref"]
    if GET_ATT in value:
        return tier, value[GET_ATT][0]
    if IMPORT in value:
        for exporter, template in templates.items():
            for output in template.get("Outputs", {}).values():
                if output.get("Export", {}).get("Name") == value[IMPORT]:
                    return origin(templates, exporter, output["Value"])
    return None
