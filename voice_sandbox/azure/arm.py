"""Resource ids in Azure Resource Manager by type, and the names that the provider assigns."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping

from voice_sandbox.azure.schema import load_definitions, load_resource_shape
from voice_sandbox.azure.values import Properties, Unknown, reveal_secrets

SUBSCRIPTION_ID = "00000000-0000-4000-8000-5ab5c0000001"
TENANT_ID = "00000000-0000-4000-8000-7e4a40000001"
CLIENT_ID = "00000000-0000-4000-8000-c11e40000001"
OBJECT_ID = "00000000-0000-4000-8000-0b3ec0000001"

_GROUP_PATH = f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/{{resourceGroupName}}"
_REDIS_PATH = f"{_GROUP_PATH}/providers/Microsoft.Cache/redisEnterprise/{{clusterName}}"
_STORAGE_PATH = f"{_GROUP_PATH}/providers/Microsoft.Storage/storageAccounts/{{accountName}}"
_ID_TEMPLATE_BY_TYPE: Mapping[str, str] = {
    "authorization:RoleAssignment": "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
    "consumption:Budget": "{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
    "kubernetesconfiguration:Extension": (
        f"{_GROUP_PATH}/providers/{{clusterRp}}/{{clusterResourceName}}/{{clusterName}}"
        "/providers/Microsoft.KubernetesConfiguration/extensions/{extensionName}"
    ),
    "monitor:DiagnosticSetting": "{resourceUri}/providers/Microsoft.Insights/diagnosticSettings/{name}",
    "monitor:MetricAlert": f"{_GROUP_PATH}/providers/Microsoft.Insights/metricAlerts/{{ruleName}}",
    "network:WebApplicationFirewallPolicy": (
        f"{_GROUP_PATH}/providers/Microsoft.Network/applicationGatewayWebApplicationFirewallPolicies/{{policyName}}"
    ),
    "redisenterprise:AccessPolicyAssignment": (
        f"{_REDIS_PATH}/databases/{{databaseName}}/accessPolicyAssignments/{{accessPolicyAssignmentName}}"
    ),
    "redisenterprise:Database": f"{_REDIS_PATH}/databases/{{databaseName}}",
    "redisenterprise:RedisEnterprise": _REDIS_PATH,
    "resources:ResourceGroup": _GROUP_PATH,
    "storage:BlobContainer": f"{_STORAGE_PATH}/blobServices/default/containers/{{containerName}}",
    "storage:ManagementPolicy": f"{_STORAGE_PATH}/managementPolicies/{{managementPolicyName}}",
    "storage:StorageAccount": _STORAGE_PATH,
}
_SINGLETON_NAME = "default"
"""Name of a resource that exists only once per parent. The name is part of ids, but not of types."""
_INPUT_PATTERN = re.compile(r"\{(\w+)\}")


def get_id_template(kind: str) -> str:
    """Return the resource id template for a type, with the names of inputs in braces.

    Args:
        kind: Type without its package, such as `containerservice:AgentPool`.
    """
    return _ID_TEMPLATE_BY_TYPE.get(kind) or _derive_id_template(kind)


def _derive_id_template(kind: str) -> str:
    """Derive a template from Azure's name for a type, and from the name inputs for its parents and for the type itself.

    For a type that the definitions lack, Azure's name is assumed to be the same as the SDK's.
    """
    module, _, name = kind.partition(":")
    shape = load_resource_shape(f"azure-native:{kind}")
    inputs = shape.inputs if shape else {}
    name_fields = [
        field for field in inputs.values() if field.name.endswith("Name") and field.name != "resourceGroupName"
    ]
    parents = [field.name for field in name_fields if field.is_required]
    optional_names = [field.name for field in name_fields if not field.is_required]
    best = next((field for field in optional_names if field.removesuffix("Name").lower() in name.lower()), None)
    best = best or (
        "resourceName"
        if "resourceName" in optional_names
        else optional_names[0]
        if optional_names
        else f"{_to_camel_case(name)}Name"
    )
    if definition := load_definitions().get(kind):
        provider, *types = definition["type"].partition("@")[0].split("/")
    else:
        provider = f"Microsoft.{module.capitalize()}"
        types = [f"{each}s" for each in (*(parent.removesuffix("Name") for parent in parents), _to_camel_case(name))]
    scope = next((field for field in ("resourceUri", "scope") if field in inputs), None)
    base = (
        f"{{{scope}}}"
        if scope
        else _GROUP_PATH
        if "resourceGroupName" in inputs
        else f"/subscriptions/{SUBSCRIPTION_ID}"
    )
    path = zip(types, [*parents[: len(types) - 1], best], strict=True)
    return f"{base}/providers/{provider}" + "".join(f"/{part}/{{{field}}}" for part, field in path)


def _to_camel_case(name: str) -> str:
    return name[0].lower() + name[1:]


def get_name_input(kind: str) -> str:
    """Return the input with a resource's name, which is the last input in its id."""
    return list_id_inputs(kind)[-1]


def list_id_inputs(kind: str) -> tuple[str, ...]:
    """Return the inputs that make up a resource id for a type, outermost first."""
    return tuple(_INPUT_PATTERN.findall(get_id_template(kind)))


def generate_name(kind: str, name: str, urn: str) -> str:
    """Return the name that the provider generates if the program sets none. Here, the name is deterministic."""
    if kind == "authorization:RoleAssignment":
        return derive_fake_uuid(urn, "name")
    suffix = hashlib.sha256(urn.encode()).hexdigest()[:8]
    return f"{name}{suffix}"


def build_arm_id(kind: str, inputs: Properties) -> str | None:
    """Return a resource's id, or `None` while an input in the id is unknown or missing."""
    values = {field: reveal_secrets(inputs.get(field)) for field in list_id_inputs(kind)}
    if any(value is None or isinstance(value, Unknown) for value in values.values()):
        return None
    return _INPUT_PATTERN.sub(lambda match: str(values[match[1]]).rstrip("/"), get_id_template(kind))


def to_arm_type(kind: str) -> str:
    """Return the type in Azure's notation, such as `Microsoft.ContainerService/managedClusters/agentPools`."""
    path = get_id_template(kind).rpartition("/providers/")[2]
    if kind == "resources:ResourceGroup":
        return "Microsoft.Resources/resourceGroups"
    return "/".join(part for part in path.split("/") if not part.startswith("{") and part != _SINGLETON_NAME)


def parse_id(kind: str, identifier: str) -> dict[str, str]:
    """Return the inputs in an id, or an empty dictionary if the id is not for this type."""
    pattern = "".join(
        f"(?P<{part[1:-1]}>{'.+' if part in ('{scope}', '{resourceUri}') else '[^/]+'})"
        if part.startswith("{")
        else re.escape(part)
        for part in re.split(r"(\{\w+\})", get_id_template(kind).replace(SUBSCRIPTION_ID, "{subscription}"))
        if part
    )
    match = re.fullmatch(pattern, identifier, re.IGNORECASE)
    return {key: value for key, value in match.groupdict().items() if key != "subscription"} if match else {}


def derive_fake_uuid(*parts: str) -> str:
    """Return a UUID that is derived deterministically from the parts."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(parts)))
