"""Reads CloudFormation templates: resources of a type, and the targets of references."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Template = Mapping[str, Any]
Key = tuple[str, str]
"""Tier and logical id of a resource."""


class Resource(NamedTuple):
    """A resource and its stack."""

    key: Key
    properties: Mapping[str, Any]

    @property
    def tier(self) -> str:
        """The stack of the resource."""
        return self.key[0]


class Templates:
    """The templates of a deployment, by tier: ``network``, ``vad``, ..."""

    def __init__(self, by_tier: Mapping[str, Template]) -> None:
        self._by_tier = by_tier
        self._exports = {
            output["Export"]["Name"]: (tier, output["Value"])
            for tier, template in by_tier.items()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }

    @property
    def descriptions(self) -> dict[str, str]:
        """Metadata of each stack, by tier."""
        return {tier: template.get("Description", tier) for tier, template in self._by_tier.items()}

    def resources_by_type(self, kind: str, tier: str | None = None) -> Iterator[Resource]:
        """Yield every resource of a type such as ``EC2::SecurityGroup``, or those of one tier."""
        for template_tier, template in self._by_tier.items():
            if tier not in (None, template_tier):
                continue
            for logical_id, resource in template["Resources"].items():
                if resource["Type"] == f"AWS::{kind}":
                    yield Resource((template_tier, logical_id), resource.get("Properties", {}))

    def table(self, kind: str) -> dict[Key, Mapping[str, Any]]:
        """Return the properties of every resource of a type."""
        return {resource.key: resource.properties for resource in self.resources_by_type(kind)}

    def origin(self, tier: str, value: object) -> Key | None:
        """Return the resource that a reference in a tier's stack refers to, through exports of other stacks."""
        match value:
            case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), _]}:
                return tier, name
            case {"Fn::ImportValue": str(export)} if export in self._exports:
                return self.origin(*self._exports[export])
        return None

    def origins(self, tier: str, values: object) -> frozenset[Key]:
        """Return the resources that a list of references refers to."""
        results = (self.origin(tier, value) for value in values) if isinstance(values, list) else ()
        return frozenset(key for key in results if key)
