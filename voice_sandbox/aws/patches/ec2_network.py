"""EC2: complete deletion of VPCs, NAT gateways and VPC endpoints."""

from __future__ import annotations

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from voice_sandbox.aws.patches.base import get_action_result


class Ec2NetworkResponse(EC2Response):
    """moto's EC2 API with complete deletion of networks."""

    def delete_vpc(self) -> ActionResult:
        """Handle DeleteVpc; moto would keep the VPC's default network ACL."""
        answer = super().delete_vpc()
        lists = self.ec2_backend.network_acls
        for name in [name for name, item in lists.items() if item.vpc_id == self._get_param("VpcId")]:
            del lists[name]
        return answer

    def delete_nat_gateway(self) -> ActionResult:
        """Handle DeleteNatGateway; as in AWS, the gateway remains visible as deleted, but its interface does not."""
        answer = super().delete_nat_gateway()
        interface = self.ec2_backend.nat_gateways[self._get_param("NatGatewayId")]._eni
        for address in self.ec2_backend.describe_addresses():
            if address.eni is interface:
                self.ec2_backend.disassociate_address(association_id=address.association_id)
        self.ec2_backend.enis.pop(interface.id, None)
        return answer

    def create_vpc_endpoint(self) -> ActionResult:
        """Handle CreateVpcEndpoint; the interfaces get the endpoint's security groups."""
        answer = super().create_vpc_endpoint()
        groups = self._get_param("SecurityGroupIds", [])
        for interface in get_action_result(answer)["VpcEndpoint"].network_interface_ids or []:
            self.ec2_backend.modify_network_interface_attribute(interface, groups)
        return answer

    def delete_vpc_endpoints(self) -> ActionResult:
        """Handle DeleteVpcEndpoints; moto would return deleted endpoints indefinitely."""
        answer = super().delete_vpc_endpoints()
        for endpoint in self._get_param("VpcEndpointIds", []):
            self.ec2_backend.vpc_end_points.pop(endpoint, None)
        return answer
