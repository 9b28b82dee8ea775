"""Names of Azure resources, node labels, taints and exports that several programs must spell identically."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from voice_blueprint.azure.contract import NAMESPACE, ROUTER_HTTP, Component
from voice_blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    GpuPool,
    PrefillDecodeCell,
    SpotNodes,
)
from voice_blueprint.file.model.deployment import AZURE_NODES_SUFFIX, Deployment

CLUSTER_PROJECT_NAME = "voice-cluster"

API_SERVER_APP_ID = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""Application id of every AKS API server in Microsoft Entra. https://azure.github.io/kubelogin/concepts/aks.html"""

# --- Resources --------------------------------------------------------------------------------------------

_SUFFIX_LENGTH = 6
"""Number of hexadecimal digits that make a name unique to the subscription. The probability of a collision is one in 16
million."""


def build_resource_group_name(deployment: Deployment) -> str:
    """Return the name of the resource group that contains everything except the nodes."""
    return deployment.name


def build_node_resource_group_name(deployment: Deployment) -> str:
    """Return the name of the resource group that AKS creates for the nodes."""
    return f"{deployment.name}{AZURE_NODES_SUFFIX}"


def build_cluster_name(deployment: Deployment) -> str:
    return deployment.name


def build_registry_name(deployment: Deployment, subscription: str) -> str:
    """Return the name of the container registry: globally unique, 5 to 50 letters and digits."""
    return f"voice{deployment.name.replace('-', '')}{_calculate_digest(deployment, subscription)}"


def build_vault_name(deployment: Deployment, subscription: str) -> str:
    """Return the name of the key vault: globally unique, 3 to 24 characters."""
    return _build_unique_name(deployment, subscription, limit=24)


def build_grafana_name(deployment: Deployment, subscription: str) -> str:
    """Return the name of the Grafana workspace: globally unique, 2 to 23 characters."""
    return _build_unique_name(deployment, subscription, limit=23)


def build_state_store_name(deployment: Deployment, subscription: str) -> str:
    """Return the name of the state store: unique in its region, at most 60 characters."""
    return _build_unique_name(deployment, subscription, limit=60)


def build_archive_account_name(deployment: Deployment, subscription: str) -> str:
    """Return the name of the storage account for transcripts: globally unique, 3 to 24 letters and digits."""
    return f"voice{deployment.name.replace('-', '')}"[: 24 - _SUFFIX_LENGTH] + _calculate_digest(
        deployment, subscription
    )


def build_resource_name(deployment: Deployment, role: str) -> str:
    """Return the name of any other resource, such as ``production-azure-nat``."""
    return f"{deployment.name}-{role}"


def build_engine_service_name(service: AzureService) -> str:
    """Return the name of the headless Kubernetes service that resolves to the addresses of all ready pods."""
    return f"engines-{service.name}"


def build_model_url(model: str) -> str:
    """Return the router's URL for a model, without ``/v1``."""
    return f"http://{Component.ROUTER}.{NAMESPACE}:{ROUTER_HTTP.number}/{model}"


def list_service_pool_names(service: AzureService) -> tuple[str, ...]:
    """Return the names of the pools on which a service runs."""
    return tuple(service.pools) if isinstance(service, ChatService) else (service.pool,)


def build_engine_workload_name(service: AzureService, pool: str) -> str:
    """Return the name of the Deployment for a service's replicas on one of its pools."""
    return f"{service.name}-{pool}" if isinstance(service, ChatService) else service.name


def build_runbook_url(deployment: Deployment, alert: str) -> str:
    """Return the URL of an alert's runbook."""
    return f"{deployment.azure.observability.runbook_url}/azure/{alert}.md"


def _build_unique_name(deployment: Deployment, subscription: str, *, limit: int) -> str:
    stem = deployment.name[: limit - _SUFFIX_LENGTH - 1].rstrip("-")
    return f"{stem}-{_calculate_digest(deployment, subscription)}"


def _calculate_digest(deployment: Deployment, subscription: str) -> str:
    return hashlib.sha256(f"{subscription}/{deployment.name}".encode()).hexdigest()[:_SUFFIX_LENGTH]


@dataclass(frozen=True)
class ResourceId:
    """Parts of a resource id."""

    subscription: str
    group: str
    name: str

    @classmethod
    def parse(cls, identifier: str) -> "ResourceId":
        """Parse ``/subscriptions/S/resourceGroups/G/providers/.../NAME``."""
        parts = identifier.split("/")
        return cls(parts[2], parts[4], parts[-1])


# --- Exports of the cluster's stack -----------------------------------------------------------------------


class ClusterOutput(StrEnum):
    """An export from the cluster's stack; the workloads' stack reads it through a stack reference."""

    DEPLOYMENT = "deployment"
    """Name of the deployment that the cluster was created from."""
    LOCATION = "location"
    TENANT_ID = "tenantId"
    SUBSCRIPTION_ID = "subscriptionId"
    RESOURCE_GROUP = "resourceGroup"
    NODE_RESOURCE_GROUP = "nodeResourceGroup"
    """Resource group in which the cluster's identity may create disks and storage accounts for volumes."""
    NODES_SUBNET_ID = "nodesSubnetId"
    """Subnet with the service endpoint for storage, through which NFS shares of Azure Files are mounted."""
    CLUSTER_NAME = "clusterName"
    CLUSTER_ID = "clusterId"
    KUBECONFIG = "kubeconfig"
    """Kubeconfig, which is a secret. Clients authenticate through ``kubelogin`` with the Azure CLI's login."""
    OIDC_ISSUER = "oidcIssuer"
    REGISTRY_NAME = "registryName"
    REGISTRY_LOGIN_SERVER = "registryLoginServer"
    VAULT_NAME = "vaultName"
    VAULT_URI = "vaultUri"
    PROMETHEUS_QUERY_ENDPOINT = "prometheusQueryEndpoint"
    KEDA_CLIENT_ID = "kedaClientId"
    """Client id for ``TriggerAuthentication``: the identity that queries Prometheus."""
    MODEL_FETCH_CLIENT_ID = "modelFetchClientId"
    """Client id for the service account of the model fetch jobs: the identity that reads secrets from the vault."""
    CALLER_IDENTITIES = "callerIdentities"
    """Identities of the caller tiers, if there are callers: ``clientId`` for signing in, and ``principalId``, which is
    the user name in the store."""
    STATE_HOST = "stateHost"
    """Host name of the state store, if there are callers."""
    ARCHIVE_URL = "archiveUrl"
    """URL of the transcript container, if there is an archive."""
    RTP_ADDRESS_NAME = "rtpAddressName"
    """Name of the public address of the UDP load balancer, if there are callers."""
    EDGE_ADDRESSES = "edgeAddresses"
    """Public addresses of the edge for DNS records, if there are callers."""
    LOG_WORKSPACE_ID = "logWorkspaceId"
    GRAFANA_ENDPOINT = "grafanaEndpoint"


# --- Service accounts with an Azure identity --------------------------------------------------------------


@dataclass(frozen=True)
class ServiceAccount:
    """A Kubernetes service account."""

    namespace: str
    name: str

    @property
    def subject(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"


KEDA_SERVICE_ACCOUNT = ServiceAccount("kube-system", "keda-operator")
"""Service account of AKS's KEDA add-on."""
MODEL_FETCH_SERVICE_ACCOUNT = ServiceAccount(NAMESPACE, "model-fetch")
"""Service account of the jobs that fill the model cache. The account may read secrets from the vault (a token for gated
models)."""

CALLER_TIERS = (Component.GATEWAY, Component.VAD, Component.ASR)
SERVICE_ACCOUNT_BY_TIER = {tier: ServiceAccount(NAMESPACE, tier.value) for tier in (*CALLER_TIERS, Component.AGENT)}
"""Service accounts of the caller tiers. Each signs in to the state store, and some read the vault."""
VAULT_TIERS = (Component.GATEWAY, Component.AGENT)
TOKEN_KEY_SECRET_NAME = "session-token-key"  # noqa: S105  name of the secret
"""Vault secret with the key that signs tokens for sessions and conversations. An operator creates the secret."""


def list_caller_tiers(azure: Azure) -> tuple[Component, ...]:
    """Return the tiers that serve callers. Without `callers`, only agents remain, if there are any."""
    tiers = CALLER_TIERS if azure.callers else ()
    return (*tiers, Component.AGENT) if azure.agents else tiers


# --- Nodes ------------------------------------------------------------------------------------------------

POOL_LABEL = "voice-serve/pool"
GPU_LABEL = "voice-serve/gpu"
"""Node label with the name of the GPU model in the catalogue."""
GPU_COUNT_LABEL = "voice-serve/gpu-count"
AUTOSCALER_GPU_LABEL = "accelerator"
"""The cluster autoscaler's ``GPULabel`` for Azure: the autoscaler waits for the GPUs of a new node before it adds
another node."""
SPOT_LABEL = "kubernetes.azure.com/scalesetpriority"


@dataclass(frozen=True)
class Taint:
    """A taint that excludes pods without a toleration from a node."""

    key: str
    value: str
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


SYSTEM_TAINT = Taint("CriticalAddonsOnly", "true")
GPU_TAINT = Taint("nvidia.com/gpu", "present")
SPOT_TAINT = Taint(SPOT_LABEL, "spot")
"""AKS adds this taint to every spot pool."""


def list_nvme_pools(azure: Azure) -> tuple[str, ...]:
    """Return the pools whose nodes store KV cache on local disks."""
    pools = (
        service.pool
        for service in azure.services
        if isinstance(service, PrefillDecodeCell | AggregatedService)
        and service.lmcache is not None
        and service.lmcache.l2_nvme_gib > 0
    )
    return tuple(dict.fromkeys(pools))


def list_pool_taints(azure: Azure, pool: GpuPool) -> tuple[Taint, ...]:
    """Return the taints on a pool's nodes; pods in the pool tolerate all of them.

    A pool of cells is reserved for cells. A pod that uses a single GPU would break up an NVLink pair, and the node
    would no longer have room for a cell.
    """
    cells = any(isinstance(service, PrefillDecodeCell) and service.pool == pool.name for service in azure.services)
    return (
        GPU_TAINT,
        *((Taint(POOL_LABEL, pool.name),) if cells else ()),
        *((SPOT_TAINT,) if isinstance(pool.purchase, SpotNodes) else ()),
    )


# --- Roles ------------------------------------------------------------------------------------------------


class Role(StrEnum):
    """A built-in role in Azure RBAC. The value is the GUID of its definition, which is the same in every tenant.

    Source: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
    """

    ACR_IMPORT = "577a9874-89fd-4f24-9dbd-b5034d0ad23a"
    """Container Registry Data Importer and Data Reader: `az acr import` uses the control plane."""
    ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
    ACR_PUSH = "8311e382-0749-4cb8-b61a-304f252e45ec"
    AKS_CLUSTER_USER = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f"
    AKS_RBAC_CLUSTER_ADMIN = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"
    CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
    GRAFANA_ADMIN = "22926164-76b3-42b3-bc55-97df8dab3e41"
    KEY_VAULT_SECRETS_OFFICER = "b86a8fe4-44ce-4948-aee5-eccb2c155cd7"
    KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
    MANAGED_IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
    MONITORING_DATA_READER = "b0d8363b-8ddd-447d-831f-62ca05bff136"
    MONITORING_READER = "43d0d8ad-25c7-4714-9337-8ba259a9fe05"
    NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"

    PRIVATE_DNS_ZONE_CONTRIBUTOR = "b12aa53e-6015-4669-85d0-8515ebb3ae7f"
    READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
    STORAGE_BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    VIRTUAL_MACHINE_ADMINISTRATOR_LOGIN = "1c0163c0-47e6-4577-8991-ea5c82e286e4"

    def build_definition_id(self, subscription: str) -> str:
        """Return the id of the role's definition in a subscription."""
        return f"/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions/{self}"
