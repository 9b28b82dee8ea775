"""EC2: VPCs, subnets, routes and gateways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, as_tags, only, tag_map, without


class Ec2(Adapter):
    """Shared by EC2's types: ids are physical ids, tags are set by a call of their own."""

    service = "ec2"

    def tag(self, physical_id: str, properties: Properties) -> str:
        """Set the tags of a fresh resource and return its id."""
        if tags := tag_map(properties):
            self.call("create_tags", Resources=[physical_id], Tags=as_tags(tags))
        return physical_id


class Vpc(Ec2):
    """A VPC."""

    resource_type = "AWS::EC2::VPC"
    replaced_by = frozenset(
        {"CidrBlock", "InstanceTenancy", "Ipv4IpamPoolId", "Ipv4NetmaskLength", "VpcEncryptionControl"}
    )
    _switches = ("EnableDnsSupport", "EnableDnsHostnames")

    def create(self, properties: Properties) -> str:
        """Create the VPC; DNS switches are attributes to EC2."""
        made = self.call("create_vpc", without(properties, "Tags", *self._switches))
        physical_id = self.begin(made["Vpc"]["VpcId"])
        self._switch(properties)
        return self.tag(physical_id, properties)

    def update(self, new: Properties) -> None:
        """Set the DNS switches again."""
        self._switch({name: False for name in self._switches if name in self.properties} | new)

    def delete(self) -> None:
        """Delete the VPC."""
        self.call("delete_vpc", VpcId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ids of what a VPC is born with."""
        mine = [{"Name": "vpc-id", "Values": [self.id]}]
        named = [*mine, {"Name": "group-name", "Values": ["default"]}]
        return {
            "VpcId": self.id,
            "CidrBlock": self.properties.get("CidrBlock"),
            "DefaultSecurityGroup": self.call("describe_security_groups", Filters=named)["SecurityGroups"][0][
                "GroupId"
            ],
            "DefaultNetworkAcl": self.call("describe_network_acls", Filters=mine)["NetworkAcls"][0]["NetworkAclId"],
        }

    def _switch(self, properties: Properties) -> None:
        for name in self._switches:
            if name in properties:
                self.call("modify_vpc_attribute", {"VpcId": self.id, name: {"Value": properties[name]}})


class Subnet(Ec2):
    """A subnet."""

    resource_type = "AWS::EC2::Subnet"
    replaced_by = frozenset(
        {
            "AvailabilityZone",
            "AvailabilityZoneId",
            "CidrBlock",
            "Ipv4IpamPoolId",
            "Ipv4NetmaskLength",
            "Ipv6CidrBlock",
            "Ipv6IpamPoolId",
            "Ipv6Native",
            "Ipv6NetmaskLength",
            "OutpostArn",
            "VpcId",
        }
    )

    def create(self, properties: Properties) -> str:
        """Create the subnet; automatic public addresses are an attribute to EC2."""
        made = self.call(
            "create_subnet", without(properties, "Tags", "MapPublicIpOnLaunch", "AssignIpv6AddressOnCreation")
        )
        physical_id = self.begin(made["Subnet"]["SubnetId"])
        self.update(properties)
        return self.tag(physical_id, properties)

    def update(self, new: Properties) -> None:
        """Set the attributes again."""
        for name in ("MapPublicIpOnLaunch", "AssignIpv6AddressOnCreation"):
            if name in new or name in self.properties:
                self.call("modify_subnet_attribute", {"SubnetId": self.id, name: {"Value": new.get(name, False)}})

    def delete(self) -> None:
        """Delete the subnet."""
        self.call("delete_subnet", SubnetId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the subnet's place."""
        subnet = self.call("describe_subnets", SubnetIds=[self.id])["Subnets"][0]
        return {"SubnetId": self.id, **only(subnet, "AvailabilityZone", "CidrBlock", "VpcId")}


class RouteTable(Ec2):
    """A route table."""

    resource_type = "AWS::EC2::RouteTable"

    def create(self, properties: Properties) -> str:
        """Create the table."""
        made = self.call("create_route_table", VpcId=properties["VpcId"])
        return self.tag(made["RouteTable"]["RouteTableId"], properties)

    def delete(self) -> None:
        """Delete the table."""
        self.call("delete_route_table", RouteTableId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"RouteTableId": self.id}


class SubnetRouteTableAssociation(Ec2):
    """The association of a subnet with a route table."""

    resource_type = "AWS::EC2::SubnetRouteTableAssociation"

    def create(self, properties: Properties) -> str:
        """Associate them."""
        return str(self.call("associate_route_table", properties)["AssociationId"])

    def delete(self) -> None:
        """Dissociate them."""
        self.call("disassociate_route_table", AssociationId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"Id": self.id}


class Route(Ec2):
    """A route of a route table."""

    resource_type = "AWS::EC2::Route"
    _destinations = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")
    replaced_by = frozenset({"RouteTableId", *_destinations})

    def create(self, properties: Properties) -> str:
        """Create the route."""
        self.call("create_route", properties)
        destination = next(properties[name] for name in self._destinations if name in properties)
        return f"{properties['RouteTableId']}|{destination}"

    def update(self, new: Properties) -> None:
        """Point the route elsewhere."""
        self.call("replace_route", new)

    def delete(self) -> None:
        """Delete the route."""
        self.call("delete_route", only(self.properties, "RouteTableId", *self._destinations))


class InternetGateway(Ec2):
    """An internet gateway."""

    resource_type = "AWS::EC2::InternetGateway"

    def create(self, properties: Properties) -> str:
        """Create the gateway."""
        return self.tag(self.call("create_internet_gateway")["InternetGateway"]["InternetGatewayId"], properties)

    def delete(self) -> None:
        """Delete the gateway."""
        self.call("delete_internet_gateway", InternetGatewayId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"InternetGatewayId": self.id}


class VpcGatewayAttachment(Ec2):
    """The attachment of an internet gateway to a VPC; VPN gateways are not represented."""

    resource_type = "AWS::EC2::VPCGatewayAttachment"
    replaced_by = frozenset({"VpcId"})

    def create(self, properties: Properties) -> str:
        """Attach the gateway."""
        self.call("attach_internet_gateway", properties)
        return f"IGW|{properties['VpcId']}"

    def update(self, new: Properties) -> None:
        """Attach another gateway in its place."""
        self.delete()
        self.call("attach_internet_gateway", new)

    def delete(self) -> None:
        """Detach the gateway."""
        self.call("detach_internet_gateway", self.properties)


class ElasticIp(Ec2):
    """An elastic address."""

    resource_type = "AWS::EC2::EIP"

    def create(self, properties: Properties) -> str:
        """Allocate the address."""
        made = self.call("allocate_address", without(properties, "Tags"))
        self.tag(made["AllocationId"], properties)
        return str(made["PublicIp"])

    def delete(self) -> None:
        """Release the address."""
        self.call("release_address", AllocationId=self.tag_target())

    def attributes(self) -> Mapping[str, Any]:
        """Return address and allocation."""
        address = self.call("describe_addresses", PublicIps=[self.id])["Addresses"][0]
        return {"PublicIp": self.id, "AllocationId": address["AllocationId"]}

    def tag_target(self) -> str:
        """Return the allocation, which is what EC2 tags."""
        return str(self.attributes()["AllocationId"])


class NatGateway(Ec2):
    """A NAT gateway."""

    resource_type = "AWS::EC2::NatGateway"

    def create(self, properties: Properties) -> str:
        """Create the gateway."""
        made = self.call("create_nat_gateway", without(properties, "Tags", "MaxDrainDurationSeconds"))
        return self.tag(made["NatGateway"]["NatGatewayId"], properties)

    def delete(self) -> None:
        """Delete the gateway."""
        self.call("delete_nat_gateway", NatGatewayId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"NatGatewayId": self.id}
