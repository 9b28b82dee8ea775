"""EC2: launch templates, placement groups and capacity reservations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Properties, only, tag_map, without
from sandbox.aws.adapters.ec2_network import Ec2


class LaunchTemplate(Ec2):
    """A launch template; a change makes a new version, and version 1 stays the default, as in AWS."""

    resource_type = "AWS::EC2::LaunchTemplate"
    name = "LaunchTemplateName"

    def create(self, properties: Properties) -> str:
        """Create the template."""
        return str(self.call("create_launch_template", properties)["LaunchTemplate"]["LaunchTemplateId"])

    def update(self, new: Properties) -> None:
        """Create a version, and set the template's own tags."""
        data, before = (only(item, "LaunchTemplateData", "VersionDescription") for item in (new, self.properties))
        if data != before:
            self.call("create_launch_template_version", data, LaunchTemplateId=self.id)
        self.retag(_specified_tags(self.properties), _specified_tags(new))

    def delete(self) -> None:
        """Delete the template with all its versions."""
        self.call("delete_launch_template", LaunchTemplateId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the version numbers, as text."""
        template = self.call("describe_launch_templates", LaunchTemplateIds=[self.id])["LaunchTemplates"][0]
        return {
            "LaunchTemplateId": self.id,
            "LatestVersionNumber": str(template["LatestVersionNumber"]),
            "DefaultVersionNumber": str(template["DefaultVersionNumber"]),
        }


def _specified_tags(properties: Properties) -> dict[str, str]:
    return tag_map((properties.get("TagSpecifications") or [{}])[0])


class PlacementGroup(Ec2):
    """A placement group; EC2 places nothing here, so it is a record only."""

    resource_type = "AWS::EC2::PlacementGroup"

    def create(self, properties: Properties) -> str:
        """Create the group under a generated name; the type has no property for it."""
        name = self.generate_name(self.scope)
        made = self.call("create_placement_group", without(properties, "Tags"), GroupName=name)
        self.tag(made["PlacementGroup"]["GroupId"], properties)
        return name

    def delete(self) -> None:
        """Delete the group."""
        self.call("delete_placement_group", GroupName=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the name."""
        return {"GroupName": self.id}

    def tag_target(self) -> str:
        """Return the group's id, which is what EC2 tags."""
        return str(self.call("describe_placement_groups", GroupNames=[self.id])["PlacementGroups"][0]["GroupId"])


class CapacityReservation(Ec2):
    """A capacity reservation; instances are not counted against it."""

    resource_type = "AWS::EC2::CapacityReservation"
    _changeable = ("InstanceCount", "EndDate", "EndDateType", "InstanceMatchCriteria")
    replaced_by = frozenset(
        {
            "AvailabilityZone",
            "AvailabilityZoneId",
            "EphemeralStorage",
            "InstanceType",
            "InstancePlatform",
            "Tenancy",
            "EbsOptimized",
            "OutPostArn",
            "PlacementGroupArn",
        }
    )

    def create(self, properties: Properties) -> str:
        """Reserve the capacity."""
        made = self.call("create_capacity_reservation", without(properties, "TagSpecifications"))
        physical_id = str(made["CapacityReservation"]["CapacityReservationId"])
        for specification in properties.get("TagSpecifications", []):
            self.tag(physical_id, specification)
        return physical_id

    def update(self, new: Properties) -> None:
        """Change count and end; tags lie in specifications here."""
        self.call("modify_capacity_reservation", only(new, *self._changeable), CapacityReservationId=self.id)
        self.retag(_specified_tags(self.properties), _specified_tags(new))

    def delete(self) -> None:
        """Cancel the reservation."""
        self.call("cancel_capacity_reservation", CapacityReservationId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the reservation's numbers."""
        found = self.call("describe_capacity_reservations", CapacityReservationIds=[self.id])
        reservation = found["CapacityReservations"][0]
        numbers = only(
            reservation, "AvailabilityZone", "AvailableInstanceCount", "InstanceType", "Tenancy", "TotalInstanceCount"
        )
        return {"Id": self.id, **numbers}
