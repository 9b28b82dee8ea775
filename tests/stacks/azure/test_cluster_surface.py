"""Network exposure, tags, and resources that remain after a teardown."""

import ipaddress
import itertools
from typing import Any

import pytest

from tests.nonempty import nonempty
from tests.stacks.azure.recorded import azure_resources, cluster, edit_deployment, inputs
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.schema import load_resource_shape

PUBLIC = {"azure.access": {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]}}
FILES = {"private": edit_deployment({}), "public": edit_deployment(PUBLIC), "both": edit_deployment({}, "both")}
SMALL = {"azure.network.cidr": "10.60.0.0/22"}
PRIVATE_TYPES = ("containerregistry:Registry", "keyvault:Vault", "dashboard:Grafana")
DATA_TYPES = (
    "resources:ResourceGroup",
    "containerregistry:Registry",
    "keyvault:Vault",
    "operationalinsights:Workspace",
    "monitor:AzureMonitorWorkspace",
)
SERVING_TYPES = (
    "containerservice:AgentPool",
    "containerservice:ManagedCluster",
    "network:Subnet",
    "network:VirtualNetwork",
)


@pytest.fixture(scope="module", params=FILES)
def graph(request: pytest.FixtureRequest) -> Graph:
    return cluster(FILES[request.param])


def _rules(graph: Graph) -> list[dict[str, Any]]:
    return [
        rule
        for r in graph.find_resources_of_type("network:NetworkSecurityGroup")
        for rule in inputs(r)["securityRules"]
    ]


def test_only_egress_and_bastion_have_public_addresses(graph: Graph) -> None:
    users = {
        user.type.removeprefix("azure-native:")
        for address in graph.find_resources_of_type("network:PublicIPAddress")
        for user in azure_resources(graph)
        if str(address.id) in str(inputs(user)) and user.urn != address.urn
    }
    bastions = {"network:BastionHost"} if graph.find_resources_of_type("network:BastionHost") else set()
    assert users == {"network:NatGateway"} | bastions
    assert len(graph.find_resources_of_type("network:PublicIPAddress")) == len(users)
    assert not [r for r in azure_resources(graph) if "LoadBalancer" in r.type or "ApplicationGateway" in r.type]


def test_no_rule_admits_the_internet(graph: Graph) -> None:
    for rule in nonempty(_rules(graph)):
        if rule["access"] == "Allow":
            source = rule["sourceAddressPrefix"]
            assert source == "VirtualNetwork" or ipaddress.ip_network(source).is_private
    for group in nonempty(graph.find_resources_of_type("network:NetworkSecurityGroup")):
        last = max(inputs(group)["securityRules"], key=lambda rule: rule["priority"])
        assert (last["access"], last["sourceAddressPrefix"], last["direction"]) == ("Deny", "*", "Inbound")


def test_every_subnet_has_a_security_group_and_no_default_outbound_access(graph: Graph) -> None:
    groups = {group.id for group in graph.find_resources_of_type("network:NetworkSecurityGroup")}
    # Azure prescribes the content of a security group for Bastion's subnet.
    subnets = [
        inputs(subnet)
        for subnet in graph.find_resources_of_type("network:Subnet")
        if subnet.name != "AzureBastionSubnet"
    ]
    assert {subnet["networkSecurityGroup"]["id"] for subnet in subnets} == groups
    assert all(subnet["defaultOutboundAccess"] is False for subnet in subnets)


def test_services_are_only_reachable_inside_the_network(graph: Graph) -> None:
    is_private = not inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))[
        "apiServerAccessProfile"
    ].get("authorizedIPRanges")
    for kind in PRIVATE_TYPES if is_private else PRIVATE_TYPES[:-1]:  # Grafana is public if the API server is public
        (service,) = graph.find_resources_of_type(kind)
        asked = inputs(service)
        access = asked.get("publicNetworkAccess") or asked["properties"]["publicNetworkAccess"]
        assert access == "Disabled"
        connections = [
            inputs(r)["privateLinkServiceConnections"] for r in graph.find_resources_of_type("network:PrivateEndpoint")
        ]
        assert [c for c in connections if c[0]["privateLinkServiceId"] == service.id]


def test_private_endpoints_are_resolved_by_name(graph: Graph) -> None:
    zones = {zone.id: zone for zone in graph.find_resources_of_type("privatedns:PrivateZone")}
    links = {inputs(link)["privateZoneName"] for link in graph.find_resources_of_type("privatedns:VirtualNetworkLink")}
    assert links == {inputs(zone)["privateZoneName"] for zone in zones.values()}
    grouped = [inputs(r) for r in graph.find_resources_of_type("network:PrivateDnsZoneGroup")]
    assert {c["privateDnsZoneId"] for each in grouped for c in each["privateDnsZoneConfigs"]} == set(zones)
    endpoints = {inputs(r)["privateEndpointName"] for r in graph.find_resources_of_type("network:PrivateEndpoint")}
    assert {each["privateEndpointName"] for each in grouped} == endpoints


def test_registry_and_vault_only_accept_identities(graph: Graph) -> None:
    registry = inputs(graph.find_resources_of_type("containerregistry:Registry")[0])
    assert registry["sku"]["name"] == "Premium"  # which has private endpoints
    assert registry["adminUserEnabled"] is False
    assert registry["anonymousPullEnabled"] is False
    assert registry["policies"]["exportPolicy"]["status"] == "disabled"
    vault = inputs(graph.find_resources_of_type("keyvault:Vault")[0])["properties"]
    assert vault["enableRbacAuthorization"] is True
    assert "accessPolicies" not in vault
    assert vault["networkAcls"] == {"bypass": "None", "defaultAction": "Deny"}


@pytest.mark.parametrize("edits", [{}, SMALL], ids=["/16", "/22"])
def test_subnet_ranges_are_inside_the_network_and_disjoint(edits: dict[str, object]) -> None:
    graph = cluster(edit_deployment(edits))
    (network,) = graph.find_resources_of_type("network:VirtualNetwork")
    whole = ipaddress.ip_network(inputs(network)["addressSpace"]["addressPrefixes"][0])
    parts = [ipaddress.IPv4Network(inputs(r)["addressPrefix"]) for r in graph.find_resources_of_type("network:Subnet")]
    assert isinstance(whole, ipaddress.IPv4Network)
    assert len(parts) == 4  # nodes, endpoints, jump host, Bastion
    assert all(part.subnet_of(whole) for part in parts)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(parts, 2))
    nodes = parts[0]
    most = sum(
        pool["maxCount"]
        for pool in (
            *(inputs(r) for r in graph.find_resources_of_type("containerservice:AgentPool")),
            *inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))["agentPoolProfiles"],
        )
    )
    assert nodes.num_addresses > 2 * most


def test_the_nat_gateway_is_zonal_and_its_address_zone_redundant(graph: Graph) -> None:
    address = inputs(graph.get_resource("egress", "network:PublicIPAddress"))
    gateway = inputs(graph.find_resources_of_type("network:NatGateway")[0])
    assert len(gateway["zones"]) == 1
    assert set(gateway["zones"]) < set(address["zones"])


def test_every_taggable_resource_has_tags(graph: Graph) -> None:
    tagged = 0
    for resource in azure_resources(graph):
        shape = load_resource_shape(resource.type)
        assert shape
        if "tags" in shape.inputs:
            tags = inputs(resource)["tags"]
            assert set(tags) == {"deployment", "environment", "managed-by"}
            assert tags["deployment"] == graph.outputs["deployment"]
            tagged += 1
    assert tagged > 20


@pytest.mark.parametrize(
    ("environment", "keep", "protect"),
    [("sandbox", False, False), ("staging", True, False), ("production", True, True)],
)
def test_retention_of_data_after_a_teardown_depends_on_the_environment(
    environment: str, *, keep: bool, protect: bool
) -> None:
    graph = cluster(edit_deployment({"environment": environment}))
    for resource in azure_resources(graph):
        kind = resource.type.removeprefix("azure-native:")
        holds_data = kind in DATA_TYPES
        assert resource.retain_on_delete is (keep and holds_data), resource.label
        assert resource.protect is (protect and (holds_data or kind in SERVING_TYPES)), resource.label
    vault = inputs(graph.find_resources_of_type("keyvault:Vault")[0])["properties"]
    assert vault.get("enablePurgeProtection") is (True if keep else None)
