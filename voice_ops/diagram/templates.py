"""Reads resources from CloudFormation templates, and resolves references between them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Template = Mapping[str, Any]
ResourceKey = tuple[str, str]
"""Tier and logical id of a resource."""


class Resource(NamedTuple):
    """A resource and its stack."""

    key: ResourceKey
    properties: Mapping[str, Any]

    @property
    def tier(self) -> str:
        """Tier whose stack contains the resource."""
        return self.key[0]


class TemplateSet:
    """The CloudFormation templates of a deployment, with one template per tier (``network``, ``vad``, ...)."""

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
        """Description of each tier's template, or the tier's name if the template has none."""
        return {tier: template.get("Description", tier) for tier, template in self._by_tier.items()}

    def iter_resources_by_type(self, kind: str, tier: str | None = None) -> Iterator[Resource]:
        """Yield the resources of a type such as ``EC2::SecurityGroup``, in all tiers or in one tier."""
        for template_tier, template in self._by_tier.items():
            if tier not in (None, template_tier):
                continue
            for logical_id, resource in template["Resources"].items():
                if resource["Type"] == f"AWS::{kind}":
                    yield Resource((template_tier, logical_id), resource.get("Properties", {}))

    def collect_properties_by_key(self, kind: str) -> dict[ResourceKey, Mapping[str, Any]]:
        """Return the properties of all resources of a type, by key."""
        return {resource.key: resource.properties for resource in self.iter_resources_by_type(kind)}

    def resolve_reference(self, tier: str, value: object) -> ResourceKey | None:
        """Return the key of the resource that a reference in a tier's template refers to.

        Imports are resolved through the exports of other stacks. The result is ``None`` for other values.
        """
        match value:
            case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), _]}:
                return tier, name
            case {"Fn::ImportValue": str(export)} if export in self._exports:
                return self.resolve_reference(*self._exports[export])
        return None

    def resolve_references(self, tier: str, values: object) -> frozenset[ResourceKey]:
        """Return the keys of the resources that a list of references refers to."""
        results = (self.resolve_reference(tier, value) for value in values) if isinstance(values, list) else ()
        return frozenset(key for key in results if key)
