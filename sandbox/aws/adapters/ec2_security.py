"""EC2: security groups and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Properties
from sandbox.aws.adapters.ec2_network import Ec2

_PEER = {
    "SourceSecurityGroupId": ("UserIdGroupPairs", "GroupId"),
    "DestinationSecurityGroupId": ("UserIdGroupPairs", "GroupId"),
    "SourcePrefixListId": ("PrefixListIds", "PrefixListId"),
    "DestinationPrefixListId": ("PrefixListIds", "PrefixListId"),
    "CidrIp": ("IpRanges", "CidrIp"),
    "CidrIpv6": ("Ipv6Ranges", "CidrIpv6"),
}
_EVERYTHING = {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}


def permission(rule: Properties) -> dict[str, Any]:
    """Return a rule in the form in which EC2 takes it."""
    result: dict[str, Any] = {name: rule[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in rule}
    for name, (group, key) in _PEER.items():
        if name in rule:
            peer = {key: rule[name]}
            if "Description" in rule:
                peer["Description"] = rule["Description"]
            result[group] = [peer]
    return result


class SecurityGroup(Ec2):
    """A security group with its inline rules."""

    resource_type = "AWS::EC2::SecurityGroup"
    name = "GroupName"
    name_limit = 255
    replaced_by = frozenset({"GroupDescription", "VpcId"})

    def create(self, properties: Properties) -> str:
        """Create the group; egress rules of the template take the place of the rule that allows everything."""
        place = {"VpcId": properties["VpcId"]} if "VpcId" in properties else {}
        made = self.call(
            "create_security_group",
            place,
            GroupName=properties["GroupName"],
            Description=properties["GroupDescription"],
        )
        physical_id = self.begin(made["GroupId"])
        self.properties = {"SecurityGroupEgress": [_EVERYTHING]}
        self.update(self.properties | properties)
        return self.tag(physical_id, properties)

    def update(self, new: Properties) -> None:
        """Remove the rules that are gone, then add the new ones."""
        for key, direction in (("SecurityGroupIngress", "ingress"), ("SecurityGroupEgress", "egress")):
            before, after = self.properties.get(key, []), new.get(key, [])
            for verb, rules in (
                ("revoke", [rule for rule in before if rule not in after]),
                ("authorize", [rule for rule in after if rule not in before]),
            ):
                if rules:
                    permissions = [permission(rule) for rule in rules]
                    self.call(f"{verb}_security_group_{direction}", GroupId=self.id, IpPermissions=permissions)

    def delete(self) -> None:
        """Delete the group."""
        self.call("delete_security_group", GroupId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return group and VPC."""
        return {"GroupId": self.id, "Id": self.id, "VpcId": self.properties.get("VpcId")}


class _Rule(Ec2):
    """A rule that stands on its own, so that two groups can name each other."""

    direction: str
    replaced_by = frozenset(
        {
            "GroupId",
            "GroupName",
            "IpProtocol",
            "FromPort",
            "ToPort",
            "SourceSecurityGroupName",
            "SourceSecurityGroupOwnerId",
            *_PEER,
        }
    )

    def create(self, properties: Properties) -> str:
        """Add the rule to its group."""
        made = self.call(
            f"authorize_security_group_{self.direction}",
            GroupId=properties["GroupId"],
            IpPermissions=[permission(properties)],
        )
        return str(made["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    def update(self, new: Properties) -> None:
        """Change the description, which is all that can change: moto does that by making the rule anew."""
        self.delete()
        self.id = self.create(new)

    def delete(self) -> None:
        """Take the rule from its group."""
        self.call(
            f"revoke_security_group_{self.direction}",
            GroupId=self.properties["GroupId"],
            IpPermissions=[permission(self.properties)],
        )

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"Id": self.id}


class SecurityGroupIngress(_Rule):
    """A rule for what comes in."""

    resource_type = "AWS::EC2::SecurityGroupIngress"
    direction = "ingress"


class SecurityGroupEgress(_Rule):
    """A rule for what goes out."""

    resource_type = "AWS::EC2::SecurityGroupEgress"
    direction = "egress"
