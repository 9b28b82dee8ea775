"""Route 53: hosted zones and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, tag_map, without


class HostedZone(Adapter):
    """A hosted zone, public or of VPCs. Not represented: query logging, feature switches."""

    resource_type = "AWS::Route53::HostedZone"
    service = "route53"
    replaced_by = frozenset({"DelegationSetId", "Name"})

    def create(self, properties: Properties) -> str:
        """Create the zone."""
        networks = [_vpc(item) for item in properties.get("VPCs", [])]
        config = {**properties.get("HostedZoneConfig", {}), "PrivateZone": bool(networks)}
        first = {"VPC": networks[0]} if networks else {}
        made = self.call(
            "create_hosted_zone",
            first,
            Name=properties["Name"],
            CallerReference=self.generate_name(self.scope),
            HostedZoneConfig=config,
        )
        zone = self.begin(made["HostedZone"]["Id"].rsplit("/", 1)[1])
        for network in networks[1:]:
            self.call("associate_vpc_with_hosted_zone", HostedZoneId=zone, VPC=network)
        self._tag(properties)
        return zone

    def update(self, new: Properties) -> None:
        """Change comment, VPCs and tags."""
        comment = new.get("HostedZoneConfig", {}).get("Comment", "")
        self.call("update_hosted_zone_comment", Id=self.id, Comment=comment)
        before, after = self.properties.get("VPCs", []), new.get("VPCs", [])
        for item in after:
            if item not in before:
                self.call("associate_vpc_with_hosted_zone", HostedZoneId=self.id, VPC=_vpc(item))
        for item in before:
            if item not in after:
                self.call("disassociate_vpc_from_hosted_zone", HostedZoneId=self.id, VPC=_vpc(item))
        self._tag(new)

    def delete(self) -> None:
        """Delete the zone."""
        self.call("delete_hosted_zone", Id=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return id and name servers."""
        found = self.call("get_hosted_zone", Id=self.id)
        return {"Id": self.id, "NameServers": found.get("DelegationSet", {}).get("NameServers", [])}

    def _tag(self, new: Properties) -> None:
        before, after = ({"Tags": item.get("HostedZoneTags")} for item in (self.properties, new))
        gone = sorted(tag_map(before).keys() - tag_map(after).keys())
        changes: Properties = {"AddTags": new["HostedZoneTags"]} if new.get("HostedZoneTags") else {}
        if gone:
            changes["RemoveTagKeys"] = gone
        if changes:
            self.call("change_tags_for_resource", changes, ResourceType="hostedzone", ResourceId=self.id)


def _vpc(network: Properties) -> dict[str, Any]:
    return {"VPCId": network["VPCId"], "VPCRegion": network["VPCRegion"]}


class RecordSet(Adapter):
    """A record."""

    resource_type = "AWS::Route53::RecordSet"
    service = "route53"
    replaced_by = frozenset({"HostedZoneId", "HostedZoneName", "Name"})

    def create(self, properties: Properties) -> str:
        """Create the record."""
        self._change("CREATE", properties)
        return str(properties["Name"])

    def update(self, new: Properties) -> None:
        """Change the record; another type or identifier is another record."""
        if any(self.properties.get(key) != new.get(key) for key in ("Type", "SetIdentifier")):
            self._change("DELETE", self.properties)
        self._change("UPSERT", new)

    def delete(self) -> None:
        """Delete the record."""
        self._change("DELETE", self.properties)

    def _change(self, action: str, properties: Properties) -> None:
        record = without(properties, "HostedZoneId", "HostedZoneName", "Comment", "ResourceRecords")
        if "ResourceRecords" in properties:
            record["ResourceRecords"] = [{"Value": value} for value in properties["ResourceRecords"]]
        if "AliasTarget" in record:
            record["AliasTarget"] = {"EvaluateTargetHealth": False, **record["AliasTarget"]}
        batch = {"Changes": [{"Action": action, "ResourceRecordSet": record}]}
        self.call("change_resource_record_sets", HostedZoneId=self._zone(properties), ChangeBatch=batch)

    def _zone(self, properties: Properties) -> str:
        if "HostedZoneId" in properties:
            return str(properties["HostedZoneId"])
        zones = self.call("list_hosted_zones_by_name", DNSName=properties["HostedZoneName"])["HostedZones"]
        return str(next(zone["Id"] for zone in zones if zone["Name"] == properties["HostedZoneName"]))
