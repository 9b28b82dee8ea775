"""EC2: security groups, launch templates, and resources that are not addressed by their physical id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, convert_tags_to_map, select_keys
from voice_sandbox.aws.shapes import Json


class Address(Adapter):
    """An Elastic IP address. Its physical id is the address itself, but EC2 identifies it by an allocation id."""

    def build_identifying_arguments(self, properties: Properties) -> dict[str, Any]:  # noqa: ARG002 - none of them names it
        """Return the allocation id."""
        return select_keys(dict(self.get_attributes()), "AllocationId")

    def get_tag_resource_id(self) -> str:
        """Return the allocation id."""
        return str(self.get_attributes()["AllocationId"])


class Vpc(Adapter):
    """A VPC, which EC2 creates with a default security group."""

    def get_attributes(self) -> Mapping[str, Any]:
        """Return the ids of the VPC and of its default security group."""
        named = [{"Name": "vpc-id", "Values": [self.id]}, {"Name": "group-name", "Values": ["default"]}]
        group = self.call("describe_security_groups", Filters=named)["SecurityGroups"][0]
        return {"VpcId": self.id, "DefaultSecurityGroup": group["GroupId"]}


class LaunchTemplate(Adapter):
    """A launch template, whose tags are nested in a tag specification."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Set the template's own tags."""
        self.update_tags(_collect_specified_tags(before), _collect_specified_tags(after))

    def compare_with_actual(self, attached: Sequence[Adapter]) -> dict[str, tuple[Json, Json]] | None:
        """Return the newest version without the template's own tags, which moto adds to the tag specifications."""
        pairs = super().compare_with_actual(attached)
        if pairs:
            _, data = pairs["LaunchTemplateData"]
            tagged = data.get("TagSpecifications", [])
            data["TagSpecifications"] = [item for item in tagged if item["ResourceType"] != "launch-template"]
        return pairs


def _collect_specified_tags(properties: Properties) -> dict[str, str]:
    return convert_tags_to_map((properties.get("TagSpecifications") or [{}])[0])


_PERMISSION_FIELDS_BY_PROPERTY = {
    "SourceSecurityGroupId": ("UserIdGroupPairs", "GroupId"),
    "DestinationSecurityGroupId": ("UserIdGroupPairs", "GroupId"),
    "SourcePrefixListId": ("PrefixListIds", "PrefixListId"),
    "DestinationPrefixListId": ("PrefixListIds", "PrefixListId"),
    "CidrIp": ("IpRanges", "CidrIp"),
    "CidrIpv6": ("Ipv6Ranges", "CidrIpv6"),
}
# Default rules of a new group whose template contains none.
_DEFAULT_GROUP_RULES: dict[str, list[Properties]] = {
    "SecurityGroupEgress": [{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}],
    "SecurityGroupIngress": [],
}


def _to_permission(rule: Properties) -> dict[str, Any]:
    """Convert a rule from the template format to the format for EC2 requests."""
    result: dict[str, Any] = select_keys(rule, "IpProtocol", "FromPort", "ToPort")
    for name, (group, key) in _PERMISSION_FIELDS_BY_PROPERTY.items():
        if name in rule:
            result[group] = [{key: rule[name], **select_keys(rule, "Description")}]
    return result


def _to_template_rule(rule: Properties) -> Properties:
    """Convert a rule from the format in EC2 responses to the template format."""
    result = select_keys(rule, "IpProtocol", "FromPort", "ToPort", "CidrIpv6", "Description")
    side = "Destination" if rule["IsEgress"] else "Source"
    if "CidrIpv4" in rule:
        result["CidrIp"] = rule["CidrIpv4"]
    if "PrefixListId" in rule:
        result[f"{side}PrefixListId"] = rule["PrefixListId"]
    if "ReferencedGroupInfo" in rule:
        result[f"{side}SecurityGroupId"] = rule["ReferencedGroupInfo"]["GroupId"]
    return result


class SecurityGroup(Adapter):
    """A security group with its inline rules."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Revoke the rules that the template no longer contains, then authorize the new rules."""
        for key, always in _DEFAULT_GROUP_RULES.items():
            current, desired = before.get(key, always), after.get(key, always)
            direction = key.removeprefix("SecurityGroup").lower()
            for verb, rules in (
                ("revoke", [rule for rule in current if rule not in desired]),
                ("authorize", [rule for rule in desired if rule not in current]),
            ):
                if rules:
                    permissions = [_to_permission(rule) for rule in rules]
                    self.call(f"{verb}_security_group_{direction}", GroupId=self.id, IpPermissions=permissions)

    def compare_with_actual(self, attached: Sequence[Adapter]) -> dict[str, tuple[Json, Json]] | None:
        """Return the group with its inline rules. Rules that are separate resources in the stack are excluded."""
        pairs = super().compare_with_actual(attached)
        if pairs is None:
            return None
        rule_ids = {adapter.id for adapter in attached if isinstance(adapter, Rule)}
        response = self.call("describe_security_group_rules", Filters=[{"Name": "group-id", "Values": [self.id]}])
        rules = [rule for rule in response["SecurityGroupRules"] if rule["SecurityGroupRuleId"] not in rule_ids]
        for key, always in _DEFAULT_GROUP_RULES.items():
            inline_rules = [_to_template_rule(rule) for rule in rules if rule["IsEgress"] == key.endswith("Egress")]
            pairs[key] = (self.properties.get(key, always), inline_rules)
        return pairs


class Rule(Adapter):
    """A rule as a separate resource, so that two security groups can refer to each other."""

    def translate(self, properties: Properties) -> Properties:
        """Convert the rule to a group id and a permission."""
        return {"GroupId": properties["GroupId"], "IpPermissions": [_to_permission(properties)]}
