"""EC2: VPCs, NAT gateways and VPC endpoints that leave nothing behind."""

from __future__ import annotations

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from sandbox.aws.mends.base import result


class NetworkResponses(EC2Response):
    """moto's EC2 API with networks that go completely."""

    def delete_vpc(self) -> ActionResult:
        """Answer DeleteVpc; moto would leave the VPC's default access list."""
        answer = super().delete_vpc()
        lists = self.ec2_backend.network_acls
        for name in [name for name, item in lists.items() if item.vpc_id == self._get_param("VpcId")]:
            del lists[name]
        return answer

    def delete_nat_gateway(self) -> ActionResult:
        """Answer DeleteNatGateway; the gateway stays visible as deleted, as in AWS, its interface does not."""
        answer = super().delete_nat_gateway()
        interface = self.ec2_backend.nat_gateways[self._get_param("NatGatewayId")]._eni
        for address in self.ec2_backend.describe_addresses():
            if address.eni is interface:
                self.ec2_backend.disassociate_address(association_id=address.association_id)
        self.ec2_backend.enis.pop(interface.id, None)
        return answer

    def create_vpc_endpoint(self) -> ActionResult:
        """Answer CreateVpcEndpoint; the interfaces get the endpoint's security groups."""
        answer = super().create_vpc_endpoint()
        groups = self._get_param("SecurityGroupIds", [])
        for interface in result(answer)["VpcEndpoint"].network_interface_ids or []:
            self.ec2_backend.modify_network_interface_attribute(interface, groups)
        return answer

    def delete_vpc_endpoints(self) -> ActionResult:
        """Answer DeleteVpcEndpoints; moto would show deleted endpoints for ever."""
        answer = super().delete_vpc_endpoints()
        for endpoint in self._get_param("VpcEndpointIds", []):
            self.ec2_backend.vpc_end_points.pop(endpoint, None)
        return answer
