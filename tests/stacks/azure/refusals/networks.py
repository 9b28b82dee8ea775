"""Refusal cases of addresses, subnets, security groups, peerings, gateways and machines."""

from tests.stacks.azure.refusals.planted import REMOVED, Case, changed, without_dependency
from voice_sandbox.azure.arm import SUBSCRIPTION_ID

ADDRESS, NAT, SUBNET = "network:PublicIPAddress", "network:NatGateway", "network:Subnet"
GROUP, BASTION, MACHINE = "network:NetworkSecurityGroup", "network:BastionHost", "compute:VirtualMachine"
PEERING = "network:VirtualNetworkPeering"
KEYS = "osProfile.linuxConfiguration.ssh.publicKeys"
NSG = (
    f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/production-azure"
    "/providers/Microsoft.Network/networkSecurityGroups"
)
CALLERS = {"direction": "Inbound", "access": "Allow", "sourceAddressPrefix": "Internet", "destinationPortRange": "443"}


CASES = (
    Case("zones-of-PublicIPAddress", ADDRESS, "egress", {"location": "westus"}, {"location": "westus2"},
         "location westus"),
    Case("zones-of-PublicIPAddress", ADDRESS, "egress", {"location": "North Central US"}, {"zones": []}),
    Case("zones-of-NatGateway", NAT, "egress", {"location": "ukwest"}, {"location": "ukwest", "zones": REMOVED}),
    Case("address-is-static", ADDRESS, "rtp", {"publicIPAllocationMethod": "Dynamic"}),
    Case("basic-address", ADDRESS, "rtp", {"sku": REMOVED}, {"sku.name": "StandardV2"}, "sku.name is missing"),
    Case("nat-zones", NAT, "egress", {"zones": ["1", "2"]}, {"zones": ["2"]}, "zones are 1, 2"),
    Case("nat-idle", NAT, "egress", {"idleTimeoutInMinutes": 121}, {"idleTimeoutInMinutes": 120}),
    Case("subnet-range", SUBNET, "endpoints", {"addressPrefix": "10.60.127.0/26"}, {"addressPrefix": "10.60.129.0/26"},
         "overlaps 10.60.0.0/17 of subnet nodes"),
    Case("subnet-range", SUBNET, "endpoints", {"addressPrefix": "10.61.0.0/26"}, {}, "is not in 10.60.0.0/16"),
    Case("subnets-at-once", SUBNET, "endpoints", without_dependency(SUBNET, "endpoints", "nodes"), {},
         "subnet nodes of the same network"),
    Case("bastion-subnet", BASTION, "bastion", changed(SUBNET, "AzureBastionSubnet", addressPrefix="10.60.128.128/27"),
         changed(SUBNET, "AzureBastionSubnet", addressPrefix="10.60.129.0/25"), "is 10.60.128.128/27"),
    Case("bastion-subnet", BASTION, "bastion", {"ipConfigurations.0.subnet.id": "/virtualNetworks/n/subnets/jump"},
         {}, "is jump"),
    Case("bastion-security-group", SUBNET, "AzureBastionSubnet",
         {"networkSecurityGroup.id": f"{NSG}/production-azure-jump"}, {}, "does not allow Internet on port 443"),
    Case("bastion-security-group", SUBNET, "AzureBastionSubnet",
         lambda all_: changed(SUBNET, "AzureBastionSubnet",
                              networkSecurityGroup={"id": f"{NSG}/production-azure-jump"})(
             changed(GROUP, "jump", securityRules=[CALLERS])(all_)),
         lambda all_: changed(SUBNET, "AzureBastionSubnet",
                              networkSecurityGroup={"id": f"{NSG}/production-azure-jump"})(
             changed(GROUP, "jump",
                     securityRules=[CALLERS, {**CALLERS, "sourceAddressPrefix": "GatewayManager"}])(all_)),
         "does not allow GatewayManager on port 443"),
    Case("bastion-tunneling", BASTION, "bastion", {"sku.name": "Basic"}, {"sku.name": "Premium"}),
    Case("security-rule-priorities", GROUP, "nodes", {"securityRules.1.priority": 100},
         {"securityRules.1.priority": 100, "securityRules.1.direction": "Outbound"}, "have priority Inbound 100"),
    Case("security-rule-range", GROUP, "nodes", {"securityRules.0.priority": 99}, {"securityRules.0.priority": 105}),
    Case("security-rule-range", GROUP, "nodes", {"securityRules.0.priority": 4097}, {"securityRules.0.priority": 4095}),
    Case("gateway-both-ways", PEERING, "deployment-to-operators", {"allowGatewayTransit": True}, {}, "", "peered"),
    Case("gateway-is-lent", PEERING, "deployment-to-operators",
         changed(PEERING, "operators-to-deployment", allowGatewayTransit=False), {"useRemoteGateways": False}, "",
         "peered"),
    Case("ssh-key-path", MACHINE, "jump", {f"{KEYS}.0.path": "/root/.ssh/authorized_keys"},
         {f"{KEYS}.0.path": "/home/nobody-signs-in/.ssh/authorized_keys"}, "it must be /home/nobody-signs-in/"),
    Case("admin-name", MACHINE, "jump", {"osProfile.adminUsername": "Admin", f"{KEYS}.0.path": "/home/Admin/.ssh/x"},
         {"osProfile.adminUsername": "operator", f"{KEYS}.0.path": "/home/operator/.ssh/x"}),
)  # fmt: skip
