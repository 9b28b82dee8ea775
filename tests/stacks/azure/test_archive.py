"""The archive of transcripts on Azure has no keys, is private, has a retention, and is written by the gateway."""

import pytest

from tests.blueprint.documents import ABSENT
from tests.stacks.azure.manifests import DIGESTS, manifests, pod, workloads
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from voice_blueprint.azure.contract import ARCHIVE_FLOWS, BLOB, Component
from voice_blueprint.azure.names import Role
from voice_sandbox.azure.graph import Graph, Resource

FILE = edit_deployment({"images": DIGESTS, "azure.callers.edge.archive": {"retention_days": 7}}, "production-azure")
WITHOUT_ARCHIVE = edit_deployment({"images": DIGESTS, "azure.callers.edge.archive": ABSENT}, "production-azure")


@pytest.fixture(scope="module")
def cloud() -> Graph:
    return cluster(FILE)


def only_resource(graph: Graph, kind: str) -> Resource:
    (found,) = (each for each in graph.iter_managed_resources() if each.type.endswith(f":{kind}"))
    return found


def test_the_account_has_no_keys_and_is_reachable_inside_the_network(cloud: Graph) -> None:
    account = inputs(only_resource(cloud, "StorageAccount"))
    assert account["allowSharedKeyAccess"] is False
    assert account["allowBlobPublicAccess"] is False
    assert account["enableHttpsTrafficOnly"] is True
    assert account["minimumTlsVersion"] == "TLS1_2"
    assert account["publicNetworkAccess"] == "Disabled"
    assert account["networkRuleSet"] == {"bypass": "None", "defaultAction": "Deny"}
    assert 3 <= len(account["accountName"]) <= 24
    assert account["accountName"].isalnum()
    assert account["accountName"] == account["accountName"].lower()
    endpoints = [inputs(each) for each in cloud.iter_managed_resources() if each.type.endswith(":PrivateEndpoint")]
    groups = [link["groupIds"] for each in endpoints for link in each["privateLinkServiceConnections"]]
    assert ["blob"] in groups


def test_transcripts_are_deleted_by_age(cloud: Graph) -> None:
    (rule,) = inputs(only_resource(cloud, "ManagementPolicy"))["policy"]["rules"]
    assert rule["definition"]["actions"] == {"baseBlob": {"delete": {"daysAfterModificationGreaterThan": 7}}}
    assert rule["definition"]["filters"] == {"blobTypes": ["blockBlob"], "prefixMatch": ["transcripts/"]}
    assert inputs(only_resource(cloud, "BlobContainer"))["containerName"] == "transcripts"


def test_only_the_gateway_can_write_and_only_to_the_container(cloud: Graph) -> None:
    container = str(only_resource(cloud, "BlobContainer").id)
    grants = [
        inputs(each)
        for each in cloud.iter_managed_resources()
        if each.type.endswith(":RoleAssignment")
        and inputs(each)["roleDefinitionId"].endswith(Role.STORAGE_BLOB_DATA_CONTRIBUTOR)
    ]
    assert [grant["scope"] for grant in grants] == [container]
    gateway = cloud.outputs["callerIdentities"][Component.GATEWAY.value]
    assert grants[0]["principalId"] == gateway["principalId"]


def test_the_gateway_signs_in_as_itself_and_reaches_the_endpoint(cloud: Graph) -> None:
    graph = workloads(FILE)
    container = pod(graph, "gateway").container("gateway")
    told = {each["name"]: each.get("value") for each in container["env"]}
    assert told["VOICE_ARCHIVE_URL"] == cloud.outputs["archiveUrl"]
    assert told["AZURE_CLIENT_ID"] == cloud.outputs["callerIdentities"]["gateway"]["clientId"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert told["AZURE_FEDERATED_TOKEN_FILE"].rpartition("/")[0] in mounts
    (flow,) = ARCHIVE_FLOWS
    assert (flow.source, flow.port) == (Component.GATEWAY, BLOB)
    policies = {each["metadata"]["name"]: each["spec"] for each in manifests(graph, "NetworkPolicy")}
    assert policies["gateway-to-archive"]["egress"][0]["ports"] == [{"port": 443, "protocol": "TCP"}]


def test_without_an_archive_no_account_and_no_route_exist() -> None:
    graph = cluster(WITHOUT_ARCHIVE)
    assert not [each for each in graph.iter_managed_resources() if "storage:" in each.type]
    pods = workloads(WITHOUT_ARCHIVE)
    container = pod(pods, "gateway").container("gateway")
    told = {each["name"]: each.get("value") for each in container["env"]}
    assert told["VOICE_ARCHIVE_URL"] == ""
    assert "AZURE_CLIENT_ID" not in told
    assert "gateway-to-archive" not in {each["metadata"]["name"] for each in manifests(pods, "NetworkPolicy")}
