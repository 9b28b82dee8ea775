"""Access from another virtual network."""

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import network

from voice_blueprint.azure.names import IdParts
from voice_blueprint.file.model.azure import PeeredNetwork
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.scope import Scope


class Peering(pulumi.ComponentResource):
    """Both sides of a peering. Traffic requires both."""

    def __init__(self, name: str, *, scope: Scope, network: VoiceNetwork, access: PeeredNetwork) -> None:
        super().__init__("voice:azure:Peering", name)
        remote_network = IdParts.of(access.network_id)
        inside = pulumi.ResourceOptions(parent=self)
        remote_side = _peering(
            "operators-to-deployment",
            group=remote_network.group,
            at=remote_network.name,
            to=network.id,
            called=scope.deployment.name,
            allow_gateway_transit=access.through_gateway,
            opts=_in_subscription(remote_network.subscription, inside)
            if remote_network.subscription != scope.subscription
            else inside,
        )
        _peering(
            "deployment-to-operators",
            group=scope.group,
            at=network.name,
            to=access.network_id,
            called="operators",
            use_remote_gateways=access.through_gateway,
            # A gateway can be used only after its own side permits it.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[remote_side]),
        )
        self.register_outputs({})


def _in_subscription(subscription: str, inside: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    provider = azure_native.Provider("operators", subscription_id=subscription, opts=inside)
    return pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(provider=provider))


def _peering(
    name: str,
    *,
    group: pulumi.Input[str],
    at: pulumi.Input[str],
    to: pulumi.Input[str],
    called: str,
    opts: pulumi.ResourceOptions,
    allow_gateway_transit: bool = False,
    use_remote_gateways: bool = False,
) -> network.VirtualNetworkPeering:
    return network.VirtualNetworkPeering(
        name,
        resource_group_name=group,
        virtual_network_name=at,
        virtual_network_peering_name=called,
        remote_virtual_network=network.SubResourceArgs(id=to),
        allow_virtual_network_access=True,
        # Traffic that passes a gateway has an address outside of the peer's range.
        allow_forwarded_traffic=use_remote_gateways,
        allow_gateway_transit=allow_gateway_transit,
        use_remote_gateways=use_remote_gateways,
        opts=opts,
    )
