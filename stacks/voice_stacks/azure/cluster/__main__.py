"""Pulumi program for the cluster: network, registry, vault, monitoring, AKS and its pools, and the edge.

Run it with `pulumi up` in this folder, or with the local engine. `stacks/voice_stacks/azure/workloads` deploys into the
cluster.
"""

import pulumi
from pulumi_azure_native import authorization

from voice_blueprint.azure.contract import Component
from voice_blueprint.azure.names import (
    KEDA_SERVICE_ACCOUNT,
    MODEL_FETCH_SERVICE_ACCOUNT,
    SERVICE_ACCOUNT_BY_TIER,
    VAULT_TIERS,
    ClusterOutput,
    Role,
    list_caller_tiers,
    list_nvme_pools,
)
from voice_blueprint.file.model.azure import JumpHost, PeeredNetwork
from voice_blueprint.observability.azure.platform import MonitoredService
from voice_constructs.azure.access import AdminRoleAssignments
from voice_constructs.azure.alerts import PlatformAlerts, PrometheusAlerts
from voice_constructs.azure.cluster import Cluster
from voice_constructs.azure.container_storage import ContainerStorage
from voice_constructs.azure.dashboards import Dashboards
from voice_constructs.azure.edge import CallerEdge
from voice_constructs.azure.identity import Identity
from voice_constructs.azure.jump_host import JumpHostMachine
from voice_constructs.azure.monitoring import Monitoring
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.peering import Peering
from voice_constructs.azure.pools import CpuNodes, GpuPools
from voice_constructs.azure.registry import ImageRegistry
from voice_constructs.azure.scope import DeploymentGroup
from voice_constructs.azure.state import StateStore
from voice_constructs.azure.telemetry import ClusterTelemetry
from voice_constructs.azure.transcripts import TranscriptArchive
from voice_constructs.azure.vault import SecretVault
from voice_stacks.azure.program import load_configured_deployment

deployment = load_configured_deployment()
azure = deployment.azure
client_config = authorization.get_client_config()

scope = DeploymentGroup(
    "group", deployment=deployment, subscription=client_config.subscription_id, tenant=client_config.tenant_id
).scope
network = VoiceNetwork("network", scope=scope)
match azure.access:
    case JumpHost() as access:
        JumpHostMachine("jump", scope=scope, network=network, access=access)
    case PeeredNetwork() as access:
        Peering("peering", scope=scope, network=network, access=access)
monitoring = Monitoring("monitoring", scope=scope, network=network)
registry = ImageRegistry("registry", scope=scope, network=network)
vault = SecretVault("vault", scope=scope, network=network)
if registry.is_managed:
    monitoring.store_audit_log("registry", registry.id, parent=registry)
monitoring.store_audit_log("vault", vault.id, parent=vault)

cluster = Cluster("cluster", scope=scope, network=network, registry=registry, monitoring=monitoring)
if list_nvme_pools(azure):
    ContainerStorage("container-storage", scope=scope, cluster=cluster)
GpuPools("pools", scope=scope, cluster=cluster, subnet=network.nodes_subnet_id)
if azure.cpu_pool:
    CpuNodes("cpu-nodes", scope=scope, cluster=cluster, subnet=network.nodes_subnet_id, pool=azure.cpu_pool)
ClusterTelemetry("telemetry", scope=scope, cluster=cluster.id, monitoring=monitoring)
alerts = PrometheusAlerts("alerts", scope=scope, metrics=monitoring.metrics_id, cluster_name=cluster.name)
Dashboards("dashboards", scope=scope)
AdminRoleAssignments(
    "administrators", scope=scope, cluster=cluster, registry=registry, vault=vault, monitoring=monitoring
)

keda = Identity("keda", scope=scope)
keda.grant_role("keda-reads-metrics", Role.MONITORING_DATA_READER, monitoring.metrics_id)
keda.trust_service_account("keda-operator", issuer=cluster.oidc_issuer, account=KEDA_SERVICE_ACCOUNT)

model_fetch = Identity("model-fetch", scope=scope)
model_fetch.grant_role("model-fetch-reads-secrets", Role.KEY_VAULT_SECRETS_USER, vault.id)
model_fetch.trust_service_account("model-fetch-job", issuer=cluster.oidc_issuer, account=MODEL_FETCH_SERVICE_ACCOUNT)

monitored_services: dict[MonitoredService, pulumi.Input[str]] = {}
if network.egress_id:
    monitored_services["Microsoft.Network/natGateways"] = network.egress_id
outputs: dict[ClusterOutput, object] = {}
if azure.callers:
    users = {tier: Identity(tier.value, scope=scope) for tier in list_caller_tiers(azure)}
    for tier, identity in users.items():
        identity.trust_service_account(
            f"{tier}-pods", issuer=cluster.oidc_issuer, account=SERVICE_ACCOUNT_BY_TIER[tier]
        )
        if tier in VAULT_TIERS:
            identity.grant_role(f"{tier}-reads-secrets", Role.KEY_VAULT_SECRETS_USER, vault.id)
    state = StateStore("state", scope=scope, network=network, settings=azure.callers.state, users=users)
    edge = CallerEdge("edge", scope=scope, network=network, edge=azure.callers.edge, agents=azure.agents)
    monitored_services |= {
        "Microsoft.Cache/redisEnterprise": state.id,
        "Microsoft.Network/applicationGateways": edge.id,
    }
    outputs = {
        ClusterOutput.CALLER_IDENTITIES: {
            tier.value: {"clientId": identity.client_id, "principalId": identity.principal_id}
            for tier, identity in users.items()
        },
        ClusterOutput.STATE_HOST: state.host,
        ClusterOutput.RTP_ADDRESS_NAME: network.rtp_address.name if network.rtp_address else None,
        ClusterOutput.EDGE_ADDRESSES: edge.addresses,
    }
    if azure.archive:
        archive = TranscriptArchive(
            "transcripts", scope=scope, network=network, retention_days=azure.archive.retention_days
        )
        writer = users[Component.GATEWAY]
        writer.grant_role("gateway-writes-transcripts", Role.STORAGE_BLOB_DATA_CONTRIBUTOR, archive.container_id)
        outputs[ClusterOutput.ARCHIVE_URL] = archive.url
PlatformAlerts("platform-alerts", scope=scope, operators=alerts.operator_group_id, services=monitored_services)

for output, value in {
    ClusterOutput.DEPLOYMENT: deployment.name,
    ClusterOutput.LOCATION: scope.location,
    ClusterOutput.TENANT_ID: scope.tenant,
    ClusterOutput.SUBSCRIPTION_ID: scope.subscription,
    ClusterOutput.RESOURCE_GROUP: scope.group,
    ClusterOutput.NODE_RESOURCE_GROUP: cluster.node_resource_group,
    ClusterOutput.NODES_SUBNET_ID: network.nodes_subnet_id,
    ClusterOutput.CLUSTER_NAME: cluster.name,
    ClusterOutput.CLUSTER_ID: cluster.id,
    ClusterOutput.KUBECONFIG: cluster.kubeconfig,
    ClusterOutput.OIDC_ISSUER: cluster.oidc_issuer,
    ClusterOutput.REGISTRY_NAME: registry.name,
    ClusterOutput.REGISTRY_LOGIN_SERVER: registry.login_server,
    ClusterOutput.VAULT_NAME: vault.name,
    ClusterOutput.VAULT_URI: vault.uri,
    ClusterOutput.PROMETHEUS_QUERY_ENDPOINT: monitoring.query_endpoint,
    ClusterOutput.KEDA_CLIENT_ID: keda.client_id,
    ClusterOutput.MODEL_FETCH_CLIENT_ID: model_fetch.client_id,
    ClusterOutput.LOG_WORKSPACE_ID: monitoring.logs_id,
    ClusterOutput.GRAFANA_ENDPOINT: monitoring.grafana_endpoint,
    **outputs,
}.items():
    pulumi.export(output, value)
