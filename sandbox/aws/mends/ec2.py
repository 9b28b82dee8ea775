"""EC2: placement groups and capacity reservations, and instances whose end takes their interfaces with them."""

from __future__ import annotations

import secrets
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2 import urls
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import instances
from moto.ec2.models.instances import Instance, InstanceState
from moto.ec2.responses import EC2Response
from moto.ec2.utils import parse_user_data

from sandbox.aws.mends.base import Record, records, result, take_over
from sandbox.aws.mends.ec2_network import NetworkResponses


class MendedEc2(NetworkResponses):
    """moto's EC2 API with what it lacks."""

    def create_placement_group(self) -> ActionResult:
        """Answer CreatePlacementGroup."""
        params = self._get_params()
        name = params["GroupName"]
        if name in self._placement_groups:
            raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
        identifier = _new_id("pg")
        group = {
            "GroupName": name,
            "GroupId": identifier,
            "GroupArn": f"arn:aws:ec2:{self.region}:{self.current_account}:placement-group/{name}",
            "State": "available",
            "Strategy": params.get("Strategy", "cluster"),
            "PartitionCount": params.get("PartitionCount"),
            "SpreadLevel": params.get("SpreadLevel"),
            "Tags": self._given_tags(),
        }
        self._placement_groups[name] = group
        return ActionResult({"PlacementGroup": group})

    def describe_placement_groups(self) -> ActionResult:
        """Answer DescribePlacementGroups by names and ids; other filters are not read."""
        names, ids = self._get_param("GroupNames", []), self._get_param("GroupIds", [])
        if missing := [name for name in names if name not in self._placement_groups]:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The placement group '{missing[0]}' is unknown.")
        found = [
            group
            for name, group in self._placement_groups.items()
            if (not names or name in names) and (not ids or group["GroupId"] in ids)
        ]
        return ActionResult({"PlacementGroups": found})

    def delete_placement_group(self) -> ActionResult:
        """Answer DeletePlacementGroup."""
        name = self._get_param("GroupName")
        if self._placement_groups.pop(name, None) is None:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown.")
        return EmptyResult()

    def create_capacity_reservation(self) -> ActionResult:
        """Answer CreateCapacityReservation; capacity is never short here."""
        params = self._get_params()
        identifier = _new_id("cr")
        arn = f"arn:aws:ec2:{self.region}:{self.current_account}:capacity-reservation/{identifier}"
        reservation = {
            "EndDateType": "unlimited",
            "InstanceMatchCriteria": "open",
            "Tenancy": "default",
            **params,
            "CapacityReservationId": identifier,
            "CapacityReservationArn": arn,
            "OwnerId": self.current_account,
            "State": "active",
            "TotalInstanceCount": params["InstanceCount"],
            "AvailableInstanceCount": params["InstanceCount"],
            "CreateDate": utcnow(),
            "StartDate": utcnow(),
            "Tags": self._given_tags(),
        }
        self._reservations[identifier] = reservation
        return ActionResult({"CapacityReservation": reservation})

    def describe_capacity_reservations(self) -> ActionResult:
        """Answer DescribeCapacityReservations by ids; filters are not read."""
        ids = self._get_param("CapacityReservationIds", [])
        found = [self._reservation(identifier) for identifier in ids] if ids else list(self._reservations.values())
        return ActionResult({"CapacityReservations": found})

    def modify_capacity_reservation(self) -> ActionResult:
        """Answer ModifyCapacityReservation."""
        params = self._get_params()
        reservation = self._reservation(params["CapacityReservationId"])
        reservation.update(params)
        if "InstanceCount" in params:
            reservation["TotalInstanceCount"] = reservation["AvailableInstanceCount"] = params["InstanceCount"]
        return ActionResult({"Return": True})

    def cancel_capacity_reservation(self) -> ActionResult:
        """Answer CancelCapacityReservation; the cancelled reservation stays visible, as in AWS."""
        reservation = self._reservation(self._get_param("CapacityReservationId"))
        reservation.update(State="cancelled", AvailableInstanceCount=0)
        return ActionResult({"Return": True})

    def create_launch_template_version(self) -> ActionResult:
        """Answer CreateLaunchTemplateVersion; no host can start from a version whose user data moto left as text."""
        answer = super().create_launch_template_version()
        data = result(answer)["LaunchTemplateVersion"]["LaunchTemplateData"]
        if isinstance(data.get("UserData"), str):
            data["UserData"] = parse_user_data(data["UserData"])
        return answer

    def describe_launch_templates(self) -> ActionResult:
        """Answer DescribeLaunchTemplates; moto stops at 15 without saying so, and shows the tags of the first day."""
        self.params.setdefault("MaxResults", 200)
        answer = super().describe_launch_templates()
        for shown in result(answer)["LaunchTemplates"]:
            shown["Tags"] = self.ec2_backend.get_launch_template(shown["LaunchTemplateId"]).get_tags()
        return answer

    def create_tags(self) -> ActionResult:
        """Answer CreateTags, also for the resources that live here."""
        mine = self._tagged()
        if not mine:
            return super().create_tags()
        new = self._get_param("Tags", [])
        for record in mine:
            record["Tags"] = [*_without_keys(record["Tags"], new), *new]
        return EmptyResult()

    def delete_tags(self) -> ActionResult:
        """Answer DeleteTags, also for the resources that live here."""
        mine = self._tagged()
        if not mine:
            return super().delete_tags()
        for record in mine:
            record["Tags"] = _without_keys(record["Tags"], self._get_param("Tags", []))
        return EmptyResult()

    @property
    def _placement_groups(self) -> dict[str, Record]:
        return records(self.ec2_backend, "placement_groups")

    @property
    def _reservations(self) -> dict[str, Record]:
        return records(self.ec2_backend, "capacity_reservations")

    def _reservation(self, identifier: str) -> Record:
        if identifier not in self._reservations:
            code = "InvalidCapacityReservationId.NotFound"
            raise EC2ClientError(code, f"The capacity reservation '{identifier}' does not exist.")
        return self._reservations[identifier]

    def _tagged(self) -> list[Record]:
        ids = self._get_param("Resources", [])
        groups = [group for group in self._placement_groups.values() if group["GroupId"] in ids]
        return groups + [item for identifier, item in self._reservations.items() if identifier in ids]

    def _given_tags(self) -> list[dict[str, str]]:
        specifications = self._get_param("TagSpecifications", [])
        return [tag for specification in specifications for tag in specification.get("Tags", [])]


def _without_keys(tags: list[dict[str, str]], gone: list[dict[str, str]]) -> list[dict[str, str]]:
    keys = {tag["Key"] for tag in gone}
    return [tag for tag in tags if tag["Key"] not in keys]


def _new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(9)[:17]}"


class MendedInstance(Instance):
    """An instance that is launched with its interfaces, and takes them with it when it ends."""

    def terminate(self) -> InstanceState:
        """End the instance; moto would leave its primary interface, and so its subnet, in use."""
        for interface in self.nics.values():
            interface.delete_on_termination = True
        return super().terminate()


def install() -> None:
    """Put the mend in place."""
    take_over(urls, EC2Response, MendedEc2)
    module: Any = instances
    module.Instance = MendedInstance
