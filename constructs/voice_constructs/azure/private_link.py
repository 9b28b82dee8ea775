"""Azure services with an address inside the virtual network."""

import pulumi
from pulumi_azure_native import network, privatedns

from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.scope import Scope


class PrivateLink(pulumi.ComponentResource):
    """A private endpoint for a service, and a DNS zone unless the zone already exists.

    In the zone, the public name of the service resolves to the endpoint.

    Args:
        at: Network of the endpoint.
        service_id: Id of the service.
        subresource: Part of the service, in Private Link's terminology.
        zone: DNS zone for such services.
            Source of both values: https://learn.microsoft.com/azure/private-link/private-endpoint-dns
    """

    def __init__(
        self,
        name: str,
        *,
        scope: Scope,
        at: VoiceNetwork,
        service_id: pulumi.Input[str],
        subresource: str,
        zone: str,
        parent: pulumi.Resource,
    ) -> None:
        super().__init__("voice:azure:PrivateLink", name, None, pulumi.ResourceOptions(parent=parent))
        inside = pulumi.ResourceOptions(parent=self)
        existing = scope.deployment.azure.existing.find_private_dns_zone_id(zone)
        links: list[pulumi.Resource] = []
        zone_id: pulumi.Input[str] = existing or self._build_zone(name, scope, zone, at, links)
        endpoint = network.PrivateEndpoint(
            name,
            resource_group_name=scope.group,
            private_endpoint_name=scope.build_name(name),
            location=scope.location,
            subnet=network.SubnetArgs(id=at.endpoints_subnet_id),
            private_link_service_connections=[
                network.PrivateLinkServiceConnectionArgs(
                    name=name, private_link_service_id=service_id, group_ids=[subresource]
                )
            ],
            tags=scope.tags,
            opts=inside,
        )
        network.PrivateDnsZoneGroup(
            name,
            resource_group_name=scope.group,
            private_endpoint_name=endpoint.name,
            private_dns_zone_group_name="default",
            private_dns_zone_configs=[network.PrivateDnsZoneConfigArgs(name=name, private_dns_zone_id=zone_id)],
            opts=pulumi.ResourceOptions(parent=self, depends_on=links),
        )
        self.register_outputs({})

    def _build_zone(
        self, name: str, scope: Scope, zone: str, voice_network: VoiceNetwork, links: list[pulumi.Resource]
    ) -> pulumi.Output[str]:
        """Create the zone, and a link to each network that resolves names in it."""
        private_zone = privatedns.PrivateZone(
            name,
            resource_group_name=scope.group,
            private_zone_name=zone,
            location="global",
            tags=scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        for label, network_id in voice_network.resolvers.items():
            called = f"{name}-{label}" if label else name
            links.append(
                privatedns.VirtualNetworkLink(
                    called,
                    resource_group_name=scope.group,
                    private_zone_name=private_zone.name,
                    virtual_network_link_name=scope.build_name(called),
                    location="global",
                    registration_enabled=False,
                    virtual_network=privatedns.SubResourceArgs(id=network_id),
                    tags=scope.tags,
                    opts=pulumi.ResourceOptions(parent=self),
                )
            )
        return private_zone.id
