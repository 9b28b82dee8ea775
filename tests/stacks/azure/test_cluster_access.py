"""Each kind of access for operators and pipelines, and use of existing resources."""

import shutil
import subprocess
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.blueprint.documents import Edits
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from voice_blueprint.azure.names import API_SERVER_APP_ID, ClusterOutput, Role
from voice_blueprint.file.model.azure import ExistingNetwork
from voice_constructs.azure.cluster import build_azure_cli_kubeconfig
from voice_constructs.azure.jump_host import create_unusable_public_key
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.values import reveal_secrets

HUB = "/subscriptions/11111111-1111-4111-8111-111111111111/resourceGroups/hub/providers"
HUB_NETWORK = f"{HUB}/Microsoft.Network/virtualNetworks/hub"
SPOKE = f"{HUB}/Microsoft.Network/virtualNetworks/spoke"
REGISTRY = f"{HUB}/Microsoft.ContainerRegistry/registries/ourImages"
WORKSPACE = f"{HUB}/Microsoft.OperationalInsights/workspaces/ours"
ZONE_PREFIX = f"{HUB}/Microsoft.Network/privateDnsZones"
ZONES = {
    name: f"{ZONE_PREFIX}/{name}"
    for name in ("privatelink.azurecr.io", "privatelink.grafana.azure.com", "privatelink.westus3.azmk8s.io")
}
PUBLIC_ACCESS: Edits = {"azure.access": {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]}}
PEERED_ACCESS: Edits = {"azure.access": {"kind": "peering", "network_id": HUB_NETWORK}}
EXISTING_NETWORK: Edits = {
    "azure.access": {
        "kind": "existing-network",
        "nodes_subnet_id": f"{SPOKE}/subnets/nodes",
        "endpoints_subnet_id": f"{SPOKE}/subnets/endpoints",
    }
}


def graph_for(edits: Edits) -> Graph:
    return cluster(edit_deployment(edits))


def aks(graph: Graph) -> dict[str, Any]:
    return inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))


# --- a jump host ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jump() -> Graph:
    return graph_for({})


def test_a_jump_host_is_only_reachable_through_bastion(jump: Graph) -> None:
    (interface,) = jump.find_resources_of_type("network:NetworkInterface")
    (configuration,) = inputs(interface)["ipConfigurations"]
    assert "publicIPAddress" not in configuration
    subnet = jump.get_resource("jump", "network:Subnet")
    assert configuration["subnet"]["id"] == subnet.id
    group = jump.get_resource("jump", "network:NetworkSecurityGroup")
    assert inputs(subnet)["networkSecurityGroup"]["id"] == group.id
    bastion_range = inputs(jump.get_resource("AzureBastionSubnet", "network:Subnet"))["addressPrefix"]
    allowed = [rule for rule in inputs(group)["securityRules"] if rule["access"] == "Allow"]
    assert [(rule["sourceAddressPrefix"], rule["destinationPortRange"]) for rule in allowed] == [(bastion_range, "22")]
    bastion = inputs(jump.find_resources_of_type("network:BastionHost")[0])
    # `az network bastion ssh` works only with the Standard SKU and tunnelling.
    assert (bastion["sku"]["name"], bastion["enableTunneling"]) == ("Standard", True)
    assert (
        bastion["ipConfigurations"][0]["subnet"]["id"] == jump.get_resource("AzureBastionSubnet", "network:Subnet").id
    )


def test_users_sign_in_to_the_jump_host_with_entra(jump: Graph) -> None:
    machine = jump.find_resources_of_type("compute:VirtualMachine")[0]
    asked = inputs(machine)
    assert asked["identity"] == {"type": "SystemAssigned"}  # which the extension uses
    (extension,) = jump.find_resources_of_type("compute:VirtualMachineExtension")
    assert inputs(extension)["type"] == "AADSSHLoginForLinux"
    assert inputs(extension)["vmName"] == asked["vmName"]
    assert asked["osProfile"]["linuxConfiguration"]["disablePasswordAuthentication"] is True
    assert "adminPassword" not in asked["osProfile"]
    assert asked["securityProfile"]["encryptionAtHost"] is True
    grants = [inputs(grant) for grant in jump.find_resources_of_type("authorization:RoleAssignment")]
    assert [
        grant["principalType"]
        for grant in grants
        if grant["roleDefinitionId"].endswith(Role.VIRTUAL_MACHINE_ADMINISTRATOR_LOGIN) and grant["scope"] == machine.id
    ] == ["Group"]


def test_the_unusable_key_is_valid() -> None:
    """OpenSSH can parse the key; Azure parses it when it creates the machine."""
    keygen = shutil.which("ssh-keygen")
    if not keygen:
        pytest.skip("no ssh-keygen here")
    command = [keygen, "-l", "-f", "-"]
    read = subprocess.run(command, input=create_unusable_public_key(), capture_output=True, text=True, check=True)  # noqa: S603
    assert read.stdout.startswith("256 SHA256:")
    assert "(ED25519)" in read.stdout


def test_the_jump_host_size_is_configurable() -> None:
    graph = graph_for({"azure.access": {"kind": "jump-host", "vm_size": "Standard_D8ds_v5"}})
    asked = inputs(graph.find_resources_of_type("compute:VirtualMachine")[0])
    assert asked["hardwareProfile"] == {"vmSize": "Standard_D8ds_v5"}


# --- a peered network -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("through_gateway", [False, True])
def test_a_peering_is_created_on_both_networks(through_gateway: bool) -> None:
    graph = graph_for({**PEERED_ACCESS, "azure.access.through_gateway": through_gateway})
    (network,) = graph.find_resources_of_type("network:VirtualNetwork")
    sides = {
        inputs(side)["virtualNetworkName"]: side
        for side in graph.find_resources_of_type("network:VirtualNetworkPeering")
    }
    ours, theirs = sides[inputs(network)["virtualNetworkName"]], sides["hub"]
    assert inputs(ours)["remoteVirtualNetwork"] == {"id": HUB_NETWORK}
    assert inputs(theirs)["remoteVirtualNetwork"] == {"id": network.id}
    assert inputs(theirs)["resourceGroupName"] == "hub"
    assert inputs(ours)["useRemoteGateways"] is through_gateway
    assert inputs(theirs)["allowGatewayTransit"] is through_gateway
    assert theirs.urn in graph.find_all_dependencies(ours.urn)
    provider = next(r for r in graph.resources if theirs.provider and r.urn in theirs.provider)
    assert reveal_secrets(provider.inputs)["subscriptionId"] == "11111111-1111-4111-8111-111111111111"
    assert ours.provider != theirs.provider


def test_a_peered_network_resolves_the_services_by_name() -> None:
    graph = graph_for(PEERED_ACCESS)
    linked: dict[str, set[str]] = {}
    for link in graph.find_resources_of_type("privatedns:VirtualNetworkLink"):
        linked.setdefault(inputs(link)["privateZoneName"], set()).add(inputs(link)["virtualNetwork"]["id"])
    own = graph.find_resources_of_type("network:VirtualNetwork")[0].id
    assert linked
    assert set(map(frozenset, linked.values())) == {frozenset({own, HUB_NETWORK})}
    access = aks(graph)["apiServerAccessProfile"]
    # The zone that AKS creates is linked only to the cluster's network.
    assert (access["enablePrivateCluster"], access["enablePrivateClusterPublicFQDN"]) == (True, True)
    assert not graph.find_resources_of_type("network:BastionHost")


# --- an existing network, and other existing resources --------------------------------------------------------


def test_an_existing_network_is_used_and_not_created() -> None:
    graph = graph_for(EXISTING_NETWORK)
    for kind in ("VirtualNetwork", "Subnet", "NetworkSecurityGroup", "NatGateway", "PublicIPAddress", "BastionHost"):
        assert not graph.find_resources_of_type(f"network:{kind}"), kind
    pools = [inputs(pool) for pool in graph.find_resources_of_type("containerservice:AgentPool")] + aks(graph)[
        "agentPoolProfiles"
    ]
    assert {pool["vnetSubnetID"] for pool in pools} == {f"{SPOKE}/subnets/nodes"}
    assert {
        inputs(endpoint)["subnet"]["id"] for endpoint in graph.find_resources_of_type("network:PrivateEndpoint")
    } == {f"{SPOKE}/subnets/endpoints"}
    assert {
        inputs(link)["virtualNetwork"]["id"] for link in graph.find_resources_of_type("privatedns:VirtualNetworkLink")
    } == {SPOKE}
    grant = inputs(graph.get_resource("control-plane-uses-subnet"))
    assert grant["scope"] == f"{SPOKE}/subnets/nodes"


@pytest.mark.parametrize(
    ("egress", "outbound"), [("nat-gateway", "userAssignedNATGateway"), ("route-table", "userDefinedRouting")]
)
def test_nodes_use_the_egress_of_an_existing_network(egress: str, outbound: str) -> None:
    graph = graph_for({**EXISTING_NETWORK, "azure.access.egress": egress})
    assert aks(graph)["networkProfile"]["outboundType"] == outbound


def test_subnets_of_two_networks_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"is in .*/hub, and nodes_subnet_id in .*/spoke"):
        ExistingNetwork(
            kind="existing-network",
            nodes_subnet_id=f"{SPOKE}/subnets/nodes",
            endpoints_subnet_id=f"{HUB_NETWORK}/subnets/endpoints",
        )


def test_an_existing_registry_and_workspace_are_used_and_not_created() -> None:
    graph = graph_for({"azure.existing": {"registry_id": REGISTRY, "log_workspace_id": WORKSPACE}})
    assert not graph.find_resources_of_type("containerregistry:Registry")
    assert not graph.find_resources_of_type("operationalinsights:Workspace")
    assert graph.outputs[ClusterOutput.REGISTRY_LOGIN_SERVER] == "ourimages.azurecr.io"
    pull = inputs(graph.get_resource("kubelet-pulls-images"))
    assert pull["scope"] == REGISTRY
    # Push permissions are outside this deployment.
    others = [inputs(r)["roleDefinitionId"] for r in graph.find_resources_of_type("authorization:RoleAssignment")]
    assert not [role for role in others if role.endswith((Role.ACR_PUSH, Role.ACR_IMPORT))]
    settings = [inputs(r)["workspaceId"] for r in graph.find_resources_of_type("monitor:DiagnosticSetting")]
    assert set(settings) == {WORKSPACE}


def test_existing_dns_zones_are_used_and_not_created() -> None:
    graph = graph_for({**EXISTING_NETWORK, "azure.existing": {"private_dns_zones": list(ZONES.values())}})
    made = {inputs(zone)["privateZoneName"] for zone in graph.find_resources_of_type("privatedns:PrivateZone")}
    assert not made & set(ZONES)
    used = {
        config["privateDnsZoneId"]
        for group in graph.find_resources_of_type("network:PrivateDnsZoneGroup")
        for config in inputs(group)["privateDnsZoneConfigs"]
    }
    api_server = ZONES["privatelink.westus3.azmk8s.io"]
    assert used >= set(ZONES.values()) - {api_server}
    access = aks(graph)["apiServerAccessProfile"]
    assert (access["privateDNSZone"], access["enablePrivateClusterPublicFQDN"]) == (api_server, False)
    # AKS writes to the zone and links it with the identity of the control plane, so both roles must exist before.
    granted = {inputs(r)["scope"]: r for r in graph.find_resources_of_type("authorization:RoleAssignment")}
    before = graph.find_all_dependencies(graph.get_resource("cluster", "containerservice:ManagedCluster").urn)
    assert {granted[api_server].urn, granted[SPOKE].urn} <= set(before)


def test_a_hub_can_have_the_zone_of_each_private_endpoint() -> None:
    """A network can be linked to one zone of a name only, and another deployment may have linked the hub to it."""
    edits: dict[str, object] = {**PEERED_ACCESS, "azure.callers.edge.archive": {}}
    own = cluster(edit_deployment(edits, "production-azure"))
    names = {inputs(zone)["privateZoneName"] for zone in own.find_resources_of_type("privatedns:PrivateZone")}
    assert len(names) == len(own.find_resources_of_type("network:PrivateEndpoint")) == 5
    shared = edits | {"azure.existing": {"private_dns_zones": [f"{ZONE_PREFIX}/{name}" for name in names]}}
    graph = cluster(edit_deployment(shared, "production-azure"))
    assert not graph.find_resources_of_type("privatedns:PrivateZone")
    assert not graph.find_resources_of_type("privatedns:VirtualNetworkLink")


def test_an_unused_dns_zone_is_refused() -> None:
    with pytest.raises(Exception, match=r"privatelink\.file\.core\.windows\.net is not used"):
        graph_for({"azure.existing": {"private_dns_zones": [f"{ZONE_PREFIX}/privatelink.file.core.windows.net"]}})


# --- a public API server --------------------------------------------------------------------------------------


def test_a_public_api_server_does_not_expose_the_registry() -> None:
    graph = graph_for(PUBLIC_ACCESS)
    (registry,) = graph.find_resources_of_type("containerregistry:Registry")
    assert inputs(registry)["publicNetworkAccess"] == "Disabled"
    # Images are imported by `az acr import` through the control plane, which requires a separate role.
    imports = [
        inputs(r) for r in graph.find_resources_of_type("authorization:RoleAssignment")
        if inputs(r)["roleDefinitionId"].endswith(Role.ACR_IMPORT)
    ]  # fmt: skip
    assert [each["scope"] for each in imports] == [registry.id]
    assert inputs(registry)["networkRuleBypassOptions"] == "AzureServices"
    # Dashboards must remain reachable.
    assert (
        inputs(graph.find_resources_of_type("dashboard:Grafana")[0])["properties"]["publicNetworkAccess"] == "Enabled"
    )


# --- signing in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edits", [{}, PUBLIC_ACCESS, PEERED_ACCESS, EXISTING_NETWORK], ids=["jump host", "public", "peering", "existing"]
)
def test_the_kubeconfig_needs_no_interaction(edits: Edits) -> None:
    """Azure's default requires a device code, which pipelines cannot enter."""
    kubeconfig = yaml.safe_load(reveal_secrets(graph_for(edits).outputs[ClusterOutput.KUBECONFIG]))
    (user,) = kubeconfig["users"]
    plugin = user["user"]["exec"]
    assert plugin["command"] == "kubelogin"
    assert plugin["args"] == ["get-token", "--login", "azurecli", "--server-id", API_SERVER_APP_ID]
    assert plugin["interactiveMode"] == "Never"
    assert list(user["user"]) == ["exec"]
    (context,) = kubeconfig["contexts"]
    assert context["context"]["user"] == user["name"]


def test_only_the_sign_in_of_a_kubeconfig_is_replaced() -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://one:443", "certificate-authority-data": "LS0t"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "me"}}],
        "users": [{"name": "me", "user": {"exec": {"args": ["get-token", "--login", "devicecode"]}}}],
    }
    ours = yaml.safe_load(build_azure_cli_kubeconfig(yaml.safe_dump(theirs).encode()))
    assert {key: value for key, value in ours.items() if key != "users"} == {
        key: value for key, value in theirs.items() if key != "users"
    }
    assert "devicecode" not in str(ours)
