"""Access from another virtual network."""

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import network

from voice_blueprint.azure.names import ResourceId
from voice_blueprint.file.model.azure import PeeredNetwork
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.scope import Scope


class Peering(pulumi.ComponentResource):
    """Both sides of a peering. Traffic requires both."""

    def __init__(self, name: str, *, scope: Scope, network: VoiceNetwork, access: PeeredNetwork) -> None:
        super().__init__("voice:azure:Peering", name)
        remote_network = ResourceId.parse(access.network_id)
        inside = pulumi.ResourceOptions(parent=self)
        remote_side = _create_peering(
            "operators-to-deployment",
            group=remote_network.group,
            network_name=remote_network.name,
            remote_network_id=network.id,
            peering_name=scope.deployment.name,
            allow_gateway_transit=access.through_gateway,
            opts=_create_subscription_options(remote_network.subscription, inside)
            if remote_network.subscription != scope.subscription
            else inside,
        )
        _create_peering(
            "deployment-to-operators",
            group=scope.group,
            network_name=network.name,
            remote_network_id=access.network_id,
            peering_name="operators",
            use_remote_gateways=access.through_gateway,
            # A gateway can only be used after its own side of the peering permits transit.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[remote_side]),
        )
        self.register_outputs({})


def _create_subscription_options(subscription: str, inside: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    provider = azure_native.Provider("operators", subscription_id=subscription, opts=inside)
    return pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(provider=provider))


def _create_peering(
    name: str,
    *,
    group: pulumi.Input[str],
    network_name: pulumi.Input[str],
    remote_network_id: pulumi.Input[str],
    peering_name: str,
    opts: pulumi.ResourceOptions,
    allow_gateway_transit: bool = False,
    use_remote_gateways: bool = False,
) -> network.VirtualNetworkPeering:
    return network.VirtualNetworkPeering(
        name,
        resource_group_name=group,
        virtual_network_name=network_name,
        virtual_network_peering_name=peering_name,
        remote_virtual_network=network.SubResourceArgs(id=remote_network_id),
        allow_virtual_network_access=True,
        # Traffic through a gateway has a source address outside the peer's range.
        allow_forwarded_traffic=use_remote_gateways,
        allow_gateway_transit=allow_gateway_transit,
        use_remote_gateways=use_remote_gateways,
        opts=opts,
    )
