"""Simulated, deterministic outputs of created Azure and Kubernetes resources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from voice_sandbox.azure import arm
from voice_sandbox.azure.arm import derive_fake_uuid
from voice_sandbox.azure.schema import Field, load_resource_shape
from voice_sandbox.azure.values import UNKNOWN, Properties, Unknown, reveal_secrets

OutputFactory = Callable[["FakeResource"], Any]
_DEFAULT_LOCATION = "eastus"


class FakeResource:
    """A resource that has just been created.

    Attributes:
        kind: Type without the package.
        inputs: Inputs, with secrets in plain form.
        id: Resource id.
        name: Name that the provider uses.
        location: Region, from the inputs or the resource group.
    """

    def __init__(self, kind: str, inputs: Properties, identifier: str, location: str | None = None) -> None:
        self.kind = kind
        self.inputs: dict[str, Any] = reveal_secrets(inputs)
        self.id = identifier
        self.name = identifier.rpartition("/")[2]
        self.location = str(self.inputs.get("location") or location or _DEFAULT_LOCATION)

    def derive_uuid(self, purpose: str) -> str:
        return derive_fake_uuid(self.id, purpose)

    @property
    def short_hash(self) -> str:
        """Eight hexadecimal digits that are unique to the resource."""
        return hashlib.sha256(self.id.encode()).hexdigest()[:8]


def _build_cluster_fqdn(fake: FakeResource) -> str:
    prefix = fake.inputs.get("dnsPrefix") or fake.name
    return f"{prefix}-{fake.short_hash}.hcp.{fake.location}.azmk8s.io"


def _build_private_fqdn(fake: FakeResource) -> str | None:
    private = (fake.inputs.get("apiServerAccessProfile") or {}).get("enablePrivateCluster")
    return _build_cluster_fqdn(fake).replace(".hcp.", ".privatelink.") if private else None


def _build_oidc_profile(fake: FakeResource) -> dict[str, Any]:
    profile = dict(fake.inputs.get("oidcIssuerProfile") or {"enabled": False})
    if profile.get("enabled"):
        profile["issuerURL"] = (
            f"https://{fake.location}.oic.prod-aks.azure.com/{arm.TENANT_ID}/{fake.derive_uuid('issuer')}/"
        )
    return profile


def _build_ingestion_endpoint(fake: FakeResource, service: str) -> dict[str, str]:
    return {"endpoint": f"https://{fake.name}-{fake.short_hash}.{fake.location}-1.{service}.monitor.azure.com"}


def _build_kubelet_identity(fake: FakeResource) -> dict[str, Any]:
    group = f"/subscriptions/{arm.SUBSCRIPTION_ID}/resourceGroups/{_get_node_resource_group(fake)}"
    identity = f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{fake.name}-agentpool"
    return {
        "kubeletidentity": {
            "resourceId": identity,
            "clientId": fake.derive_uuid("kubelet client"),
            "objectId": fake.derive_uuid("kubelet object"),
        }
    }


def _get_node_resource_group(fake: FakeResource) -> str:
    requested = fake.inputs.get("nodeResourceGroup")
    return str(requested or f"MC_{fake.inputs.get('resourceGroupName')}_{fake.name}_{fake.location}")


_OUTPUT_FACTORIES: Mapping[tuple[str, str], OutputFactory] = {
    ("containerregistry:Registry", "loginServer"): lambda fake: f"{fake.name.lower()}.azurecr.io",
    ("containerservice:ManagedCluster", "fqdn"): _build_cluster_fqdn,
    ("containerservice:ManagedCluster", "privateFQDN"): _build_private_fqdn,
    ("containerservice:ManagedCluster", "identityProfile"): _build_kubelet_identity,
    ("containerservice:ManagedCluster", "nodeResourceGroup"): _get_node_resource_group,
    ("containerservice:ManagedCluster", "oidcIssuerProfile"): _build_oidc_profile,
    ("containerservice:ManagedCluster", "currentKubernetesVersion"): lambda fake: fake.inputs.get("kubernetesVersion"),
    ("keyvault:Vault", "properties"): lambda fake: (
        dict(fake.inputs.get("properties") or {}) | {"vaultUri": f"https://{fake.name}.vault.azure.net/"}
    ),
    ("monitor:DataCollectionEndpoint", "logsIngestion"): lambda fake: _build_ingestion_endpoint(fake, "ingest"),
    ("monitor:DataCollectionEndpoint", "metricsIngestion"): lambda fake: _build_ingestion_endpoint(
        fake, "metrics.ingest"
    ),
    ("monitor:DataCollectionRule", "immutableId"): lambda fake: f"dcr-{fake.derive_uuid('rule').replace('-', '')}",
    ("network:PublicIPAddress", "ipAddress"): lambda fake: f"192.0.2.{int(fake.short_hash, 16) % 254 + 1}",
    ("dashboard:Grafana", "properties"): lambda fake: (
        dict(fake.inputs.get("properties") or {})
        | {"endpoint": f"https://{fake.name}-{fake.short_hash}.{fake.location}.grafana.azure.com"}
    ),
    ("monitor:AzureMonitorWorkspace", "metrics"): lambda fake: {
        "internalId": f"mac_{fake.derive_uuid('metrics')}",
        "prometheusQueryEndpoint": f"https://{fake.name}-{fake.short_hash}.{fake.location}.prometheus.monitor.azure.com",
    },
    ("monitor:AzureMonitorWorkspace", "defaultIngestionSettings"): lambda fake: {
        key: fake.id.replace("Microsoft.Monitor/accounts", f"Microsoft.Insights/{kind}")
        for key, kind in {
            "dataCollectionEndpointResourceId": "dataCollectionEndpoints",
            "dataCollectionRuleResourceId": "dataCollectionRules",
        }.items()
    },
}
_OUTPUT_FACTORY_BY_NAME: Mapping[str, OutputFactory] = {
    "azureApiVersion": lambda _: "2025-09-01",
    "clientId": lambda fake: fake.derive_uuid("clientId"),
    "customerId": lambda fake: fake.derive_uuid("customer"),
    "location": lambda fake: fake.location,
    "name": lambda fake: fake.name,
    "principalId": lambda fake: fake.inputs.get("principalId") or fake.derive_uuid("principalId"),
    "provisioningState": lambda _: "Succeeded",
    "tenantId": lambda _: arm.TENANT_ID,
    "type": lambda fake: arm.to_arm_type(fake.kind),
}


def build_azure_outputs(fake: FakeResource) -> dict[str, Any]:
    """Return the provider's outputs of a created Azure resource."""
    shape = load_resource_shape(f"azure-native:{fake.kind}")
    outputs = shape.outputs if shape else {}
    answer = {key: value for key, value in fake.inputs.items() if key in outputs}
    if isinstance(answer.get("identity"), Mapping):
        answer["identity"] = _to_arm_identity(fake, answer["identity"])
    for field in outputs.values():
        maker = _OUTPUT_FACTORIES.get((fake.kind, field.name))
        if maker or field.name == "name" or field.name not in answer:
            value = maker(fake) if maker else _build_common_output(fake, field)
            if value is not None:
                answer[field.name] = value
    return answer


def _build_common_output(fake: FakeResource, field: Field) -> Any:
    maker = _OUTPUT_FACTORY_BY_NAME.get(field.name)
    if maker:
        return maker(fake)
    if not field.is_required:
        return None
    if "builtins.str]" in field.annotation and not (field.is_list or field.is_map):
        return f"{field.name}-{fake.short_hash}"
    return {} if "outputs." in field.annotation and not field.is_list else None


def _to_arm_identity(fake: FakeResource, requested: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a managed identity to ARM's format, in which the list of identities is a map."""
    answer = dict(requested)
    if "SystemAssigned" in str(requested.get("type")):
        answer |= {"principalId": fake.derive_uuid("system principal"), "tenantId": arm.TENANT_ID}
    identities = requested.get("userAssignedIdentities")
    if isinstance(identities, list):
        answer["userAssignedIdentities"] = {
            str(identity): {key: derive_fake_uuid(str(identity), key) for key in ("clientId", "principalId")}
            for identity in identities
        }
    return answer


def build_planned_outputs(kind: str, inputs: Properties) -> dict[str, Any]:
    """Return the outputs of an Azure resource before its creation. Outputs that are not inputs are `UNKNOWN`."""
    shape = load_resource_shape(f"azure-native:{kind}")
    answer: dict[str, Any] = {}
    for name in shape.outputs if shape else ():
        computed = name not in inputs or (kind, name) in _OUTPUT_FACTORIES
        answer[name] = UNKNOWN if computed else inputs[name]
    given_name = inputs.get(arm.get_name_input(kind))
    if "name" in answer and given_name is not None:
        answer["name"] = given_name
    identity = reveal_secrets(answer.get("identity"))
    if isinstance(identity, Mapping) and "userAssignedIdentities" in identity:
        answer["identity"] = dict(identity) | {"userAssignedIdentities": UNKNOWN}
    return answer


def build_kubernetes_outputs(token: str, inputs: Properties, *, planned: bool) -> dict[str, Any]:
    """Return the provider's outputs for a Kubernetes object; if it is only `planned`, those before its creation."""
    shape = load_resource_shape(token)
    answer: dict[str, Any] = dict(inputs)
    if shape and "status" in shape.outputs:
        answer["status"] = UNKNOWN if planned else {}
    spec, metadata = reveal_secrets(inputs.get("spec")), reveal_secrets(inputs.get("metadata")) or {}
    if not planned and isinstance(spec, Mapping) and token.endswith("core/v1:Service"):
        digits = hashlib.sha256(str(metadata.get("name")).encode()).digest()
        answer["spec"] = {"clusterIP": f"10.0.{digits[0]}.{digits[1]}"} | dict(spec)
        if spec.get("type") == "LoadBalancer":
            answer["status"] = {"loadBalancer": {"ingress": [{"ip": f"198.51.100.{digits[0] % 254 + 1}"}]}}
    return answer


def build_kubernetes_id(inputs: Properties) -> str | None:
    """Return an object's id, `namespace/name`, or `None` while the namespace or the name is unknown."""
    metadata = reveal_secrets(inputs.get("metadata")) or {}
    if isinstance(metadata, Unknown):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if name is None or isinstance(name, Unknown) or isinstance(namespace, Unknown):
        return None
    return f"{namespace}/{name}" if namespace else str(name)
