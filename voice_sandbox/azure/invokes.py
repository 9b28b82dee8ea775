"""Results of the functions that programs call (invokes): the deploying identity, and created resources."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from voice_sandbox.azure import arm
from voice_sandbox.azure.errors import DependencyError, ResourceError
from voice_sandbox.azure.graph import Resource
from voice_sandbox.azure.schema import load_resource_shape
from voice_sandbox.azure.values import Properties, reveal_secrets

_CLIENT_CONFIG = {
    "clientId": arm.CLIENT_ID,
    "objectId": arm.OBJECT_ID,
    "subscriptionId": arm.SUBSCRIPTION_ID,
    "tenantId": arm.TENANT_ID,
}
_CREDENTIALS_FUNCTION_PATTERN = re.compile(r"azure-native:containerservice:listManagedCluster(User|Admin)Credentials")
_GET_FUNCTION_PATTERN = re.compile(r"azure-native:(\w+):get(\w+)")
_CLUSTER_TYPE = "containerservice:ManagedCluster"


def invoke_function(token: str, arguments: Properties, created: Iterable[Resource]) -> dict[str, Any]:
    """Return the result of a function.

    Args:
        token: Token of the function, such as `azure-native:containerservice:listManagedClusterUserCredentials`.
        arguments: Its arguments.
        created: Azure resources that have been created so far.

    Raises:
        DependencyError: The requested resource does not exist yet.
        ResourceError: The engine does not support this function.
    """
    if token == "azure-native:authorization:getClientConfig":  # noqa: S105 - a function
        return dict(_CLIENT_CONFIG)
    if credentials := _CREDENTIALS_FUNCTION_PATTERN.fullmatch(token):
        owner = _find_resource(token, _CLUSTER_TYPE, arguments, created)
        return {"kubeconfigs": [{"name": f"cluster{credentials[1]}", "value": _build_kubeconfig(owner)}]}
    match = _GET_FUNCTION_PATTERN.fullmatch(token)
    kind = ":".join(match.groups()) if match else ""
    if load_resource_shape(f"azure-native:{kind}") is None:
        raise ResourceError(
            f"{token}: the local engine does not support this function; it supports getClientConfig, "
            "list*Credentials of a cluster, and get<Type> of resources that the stack created"
        )
    owner = _find_resource(token, kind, arguments, created)
    return {**reveal_secrets(owner.outputs), "id": owner.id}


def _find_resource(token: str, kind: str, arguments: Properties, created: Iterable[Resource]) -> Resource:
    resource_id = arm.build_arm_id(kind, arguments)
    if resource_id is None:
        raise ResourceError(
            f"{token}: its arguments do not identify a {kind}: {', '.join(sorted(arguments)) or 'none'}"
        )
    for resource in created:
        if resource.id and resource.id.lower() == resource_id.lower():
            return resource
    name = resource_id.rpartition("/")[2]
    raise DependencyError(
        f'the call of {token} needs {kind} "{name}", which does not exist yet; '
        f"pass an output of that resource as argument, or depend on it ({resource_id})"
    )


def _build_kubeconfig(cluster: Resource) -> str:
    """Return a kubeconfig without an actual server, in the format and encoding of Azure's API."""
    name = str(cluster.outputs.get("name"))
    user = f"clusterUser_{name}"
    document: Mapping[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{cluster.outputs.get('fqdn')}:443"}}],
        "users": [{"name": user, "user": {"token": arm.derive_fake_uuid(cluster.urn, "token")}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return base64.b64encode(yaml.safe_dump(document, sort_keys=False).encode()).decode()
