"""EC2: VPC endpoints and flow logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Properties, only, without
from sandbox.aws.adapters.ec2_network import Ec2


class VpcEndpoint(Ec2):
    """A VPC endpoint, of the gateway or the interface kind."""

    resource_type = "AWS::EC2::VPCEndpoint"
    replaced_by = frozenset(
        {"ResourceConfigurationArn", "ServiceName", "ServiceNetworkArn", "ServiceRegion", "VpcEndpointType", "VpcId"}
    )
    _lists = ("RouteTableIds", "SubnetIds", "SecurityGroupIds")

    def create(self, properties: Properties) -> str:
        """Create the endpoint."""
        made = self.call("create_vpc_endpoint", without(properties, "Tags"))
        return self.tag(made["VpcEndpoint"]["VpcEndpointId"], properties)

    def update(self, new: Properties) -> None:
        """Add and remove route tables, subnets and security groups; set the rest."""
        moves: Properties = {}
        for name in self._lists:
            before, after = set(self.properties.get(name, [])), set(new.get(name, []))
            moves[f"Add{name}"], moves[f"Remove{name}"] = sorted(after - before), sorted(before - after)
        moves = {name: ids for name, ids in moves.items() if ids}
        self.call(
            "modify_vpc_endpoint",
            only(new, "DnsOptions", "IpAddressType", "PolicyDocument", "PrivateDnsEnabled"),
            moves,
            VpcEndpointId=self.id,
        )

    def delete(self) -> None:
        """Delete the endpoint."""
        self.call("delete_vpc_endpoints", VpcEndpointIds=[self.id])

    def attributes(self) -> Mapping[str, Any]:
        """Return names and interfaces; each DNS entry reads `zone:name`, as CloudFormation has it."""
        endpoint = self.call("describe_vpc_endpoints", VpcEndpointIds=[self.id])["VpcEndpoints"][0]
        entries = endpoint.get("DnsEntries", [])
        return {
            "Id": self.id,
            "DnsEntries": [f"{entry.get('HostedZoneId', '')}:{entry['DnsName']}" for entry in entries],
            "NetworkInterfaceIds": endpoint.get("NetworkInterfaceIds", []),
        }


class FlowLog(Ec2):
    """A flow log of a VPC, a subnet or an interface."""

    resource_type = "AWS::EC2::FlowLog"

    def create(self, properties: Properties) -> str:
        """Create the flow log.

        Raises:
            ValueError: If EC2 refuses it; this call answers errors in its body.
        """
        made = self.call(
            "create_flow_logs", without(properties, "Tags", "ResourceId"), ResourceIds=[properties["ResourceId"]]
        )
        if made["Unsuccessful"]:
            raise ValueError(made["Unsuccessful"][0]["Error"]["Message"])
        return self.tag(made["FlowLogIds"][0], properties)

    def delete(self) -> None:
        """Delete the flow log."""
        self.call("delete_flow_logs", FlowLogIds=[self.id])

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"Id": self.id}
