"""Permissions: a table lists every role of every identity, and no other role is assigned."""

from collections import Counter

import pytest

from tests.nonempty import nonempty
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from voice_blueprint.azure.names import Role
from voice_sandbox.azure.graph import Graph, Resource
from voice_sandbox.azure.values import reveal_secrets

ADMINS = ["00000000-0000-4000-8000-0000000000a1", "00000000-0000-4000-8000-0000000000a2"]
GROUP_ID = (
    "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/r/"
    "providers/Microsoft.Compute/capacityReservationGroups/a100"
)
WITH_RESERVATION = edit_deployment(
    {
        "azure.admin_groups": ADMINS,
        "azure.pools.3.purchase": {"option": "capacity-reservation", "group_id": GROUP_ID},
    }
)

ALLOWED_ROLES: set[tuple[str, Role, str]] = {
    ("control-plane", Role.NETWORK_CONTRIBUTOR, "network:Subnet nodes"),
    ("control-plane", Role.MANAGED_IDENTITY_OPERATOR, "managedidentity:UserAssignedIdentity kubelet"),
    ("kubelet", Role.ACR_PULL, "containerregistry:Registry registry"),
    ("keda", Role.MONITORING_DATA_READER, "monitor:AzureMonitorWorkspace metrics"),
    ("grafana", Role.MONITORING_DATA_READER, "monitor:AzureMonitorWorkspace metrics"),
    ("grafana", Role.MONITORING_READER, "operationalinsights:Workspace logs"),
    ("model-fetch", Role.KEY_VAULT_SECRETS_USER, "keyvault:Vault vault"),
}
USER_ROLES: set[tuple[Role, str]] = {
    (Role.AKS_CLUSTER_USER, "containerservice:ManagedCluster cluster"),
    (Role.AKS_RBAC_CLUSTER_ADMIN, "containerservice:ManagedCluster cluster"),
    (Role.ACR_PUSH, "containerregistry:Registry registry"),
    (Role.ACR_IMPORT, "containerregistry:Registry registry"),
    (Role.READER, "resources:ResourceGroup group"),
    (Role.VIRTUAL_MACHINE_ADMINISTRATOR_LOGIN, "compute:VirtualMachine jump"),
    (Role.KEY_VAULT_SECRETS_OFFICER, "keyvault:Vault vault"),
    (Role.GRAFANA_ADMIN, "dashboard:Grafana grafana"),
}


def _identities(graph: Graph) -> dict[str, Resource]:
    return {
        str(reveal_secrets(r.outputs["principalId"])): r
        for r in graph.find_resources_of_type("managedidentity:UserAssignedIdentity")
    }


def _grants(graph: Graph) -> list[tuple[str, Role, str]]:
    """Return identity name or group id, role, and scope."""
    identities = _identities(graph)
    things = {str(r.id): f"{r.type.removeprefix('azure-native:')} {r.name}" for r in graph.iter_managed_resources()}
    found = []
    for resource in graph.find_resources_of_type("authorization:RoleAssignment"):
        asked = inputs(resource)
        who = identities[asked["principalId"]].name if asked["principalId"] in identities else asked["principalId"]
        role = Role(asked["roleDefinitionId"].rpartition("/")[2])
        found.append((who, role, things.get(asked["scope"], asked["scope"])))
    return found


@pytest.fixture(scope="module")
def graph() -> Graph:
    return cluster(WITH_RESERVATION)


def test_identities_have_each_role_of_the_table_once(graph: Graph) -> None:
    people = {(admin, role, on) for admin in ADMINS for role, on in USER_ROLES}
    reserved = {("control-plane", Role.CONTRIBUTOR, GROUP_ID)}
    assert Counter(_grants(graph)) == Counter(ALLOWED_ROLES | people | reserved)


def test_without_a_reservation_no_role_refers_to_one() -> None:
    people = {("00000000-0000-0000-0000-000000000000", role, on) for role, on in USER_ROLES}
    assert Counter(_grants(cluster(edit_deployment({})))) == Counter(ALLOWED_ROLES | people)


def test_every_identity_has_a_role_and_a_user(graph: Graph) -> None:
    aks = inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))
    grafana = inputs(graph.get_resource("grafana", "dashboard:Grafana"))
    trusted = {
        inputs(r)["resourceName"] for r in graph.find_resources_of_type("managedidentity:FederatedIdentityCredential")
    }
    for principal, identity in nonempty(_identities(graph).items()):
        assert any(
            inputs(r)["principalId"] == principal for r in graph.find_resources_of_type("authorization:RoleAssignment")
        )
        used = {
            *aks["identity"]["userAssignedIdentities"],
            aks["identityProfile"]["kubeletidentity"]["resourceId"],
            *grafana["identity"]["userAssignedIdentities"],
        }
        assert identity.id in used or inputs(identity)["resourceName"] in trusted


def test_nodes_can_only_pull_images(graph: Graph) -> None:
    aks = inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))
    kubelet = aks["identityProfile"]["kubeletidentity"]
    assert _identities(graph)[kubelet["objectId"]].id == kubelet["resourceId"]
    (pull,) = [
        r for r in graph.find_resources_of_type("authorization:RoleAssignment") if Role.ACR_PULL in str(inputs(r))
    ]
    (registry,) = graph.find_resources_of_type("containerregistry:Registry")
    assert (inputs(pull)["principalId"], inputs(pull)["scope"]) == (kubelet["objectId"], registry.id)


def test_principal_types_are_set(graph: Graph) -> None:
    # Azure refuses a principal that it has not replicated yet, unless its type is given.
    for resource in nonempty(graph.find_resources_of_type("authorization:RoleAssignment")):
        kind = "Group" if inputs(resource)["principalId"] in ADMINS else "ServicePrincipal"
        assert inputs(resource)["principalType"] == kind


def test_service_accounts_are_trusted_one_by_one(graph: Graph) -> None:
    aks = graph.get_resource("cluster", "containerservice:ManagedCluster")
    issuer = reveal_secrets(aks.outputs["oidcIssuerProfile"])["issuerURL"]
    credentials = [inputs(r) for r in graph.find_resources_of_type("managedidentity:FederatedIdentityCredential")]
    assert {each["subject"] for each in credentials} == {
        "system:serviceaccount:kube-system:keda-operator",
        "system:serviceaccount:voice:model-fetch",
    }
    for each in credentials:
        assert each["issuer"] == issuer
        assert each["audiences"] == ["api://AzureADTokenExchange"]


def test_the_cluster_depends_on_the_roles_of_its_identities(graph: Graph) -> None:
    aks = graph.get_resource("cluster", "containerservice:ManagedCluster")
    before = graph.find_all_dependencies(aks.urn)
    for name in ("control-plane-uses-subnet", "control-plane-assigns-kubelet", "kubelet-pulls-images"):
        assert graph.get_resource(name).urn in before
