"""Reads an AKS cluster from Azure Resource Manager, and the objects in the cluster from the Kubernetes API.

The Kubernetes API is called with azure-core, which is part of the extra `azure`. Two list requests do not justify the
package `kubernetes`: version 37.0.2 is a 7.5 MB wheel with six more dependencies. The operator signs in once for both
APIs, so neither a kubeconfig nor kubelogin is required on the machine.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from azure.core import PipelineClient
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
    map_error,
)
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
from azure.core.pipeline.transport import RequestsTransport
from azure.core.rest import HttpRequest

from voice_blueprint.azure import names
from voice_ops.preflight.azure.account import Account, parse_json_body
from voice_ops.preflight.azure.refusals import explain_error
from voice_ops.preflight.questions import RequestFailure, extract_first_line
from voice_ops.timeouts import CONNECT_TIMEOUT_S, MAX_ATTEMPTS, READ_TIMEOUT_S

API_VERSION = "2025-09-01"
"""API version of Microsoft.ContainerService that the Pulumi programs use (pulumi-azure-native 3.29.0)."""
ERROR_CLASSES_BY_STATUS = {401: ClientAuthenticationError, 404: ResourceNotFoundError}
HTTP_FORBIDDEN = 403


class ClusterUnreachableError(ServiceRequestError):
    """The Kubernetes API server cannot be reached."""


class ClusterAccessDeniedError(HttpResponseError):
    """The Kubernetes API server responds, but denies access."""


@dataclass(frozen=True)
class Cluster:
    """The AKS cluster of a deployment."""

    account: Account

    @property
    def id(self) -> str:
        """Resource id of the cluster in Azure."""
        deployment = self.account.deployment
        return (
            f"/subscriptions/{self.account.subscription}/resourceGroups/{names.build_resource_group_name(deployment)}"
            f"/providers/Microsoft.ContainerService/managedClusters/{names.build_cluster_name(deployment)}"
        )

    def fetch_properties(self, child: str = "") -> Mapping[str, Any] | None:
        """Return the properties of the cluster or of a child such as ``/agentPools/gpu``, or None if it is missing."""
        try:
            result = self.account.resource_client.resources.get_by_id(f"{self.id}{child}", api_version=API_VERSION)
        except ResourceNotFoundError:
            return None
        properties: Mapping[str, Any] = result.properties or {}
        return properties

    @cached_property
    def kubernetes(self) -> "KubernetesClient":
        """Client of the Kubernetes API, at the address in the kubeconfig of the signed-in user.

        Raises:
            HttpResponseError: Azure denies access to the kubeconfig.
        """
        request = HttpRequest("POST", f"{self.id}/listClusterUserCredential?api-version={API_VERSION}")
        answer = self.account.resource_client.send_request(request)
        answer.raise_for_status()
        config = yaml.safe_load(base64.b64decode(parse_json_body(answer)["kubeconfigs"][0]["value"]))
        cluster = config["clusters"][0]["cluster"]
        return KubernetesClient(
            self.account, cluster["server"], base64.b64decode(cluster["certificate-authority-data"])
        )


class KubernetesClient:
    """Client of a cluster's Kubernetes API, with the permissions of the operator.

    Args:
        account: Account whose credential authenticates the requests.
        server: Address of the API server.
        authority: CA certificate of the API server, PEM.
    """

    def __init__(self, account: Account, server: str, authority: bytes) -> None:
        self._folder = TemporaryDirectory(prefix="voice-cluster-")
        file = Path(self._folder.name) / "ca.crt"
        file.write_bytes(authority)
        options = {"retry_total": MAX_ATTEMPTS - 1, **{k: v for k, v in account.options.items() if k != "transport"}}
        self._client: PipelineClient[Any, Any] = PipelineClient(
            server,
            policies=[
                RetryPolicy(**options),
                BearerTokenCredentialPolicy(account.credential, f"{names.API_SERVER_APP_ID}/.default"),
            ],
            transport=RequestsTransport(
                connection_verify=str(file), connection_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S
            ),
        )

    def list_objects(self, path: str) -> list[dict[str, Any]]:
        """Return the objects at a path such as ``/apis/apps/v1/namespaces/voice/deployments``.

        Raises:
            ClusterUnreachableError: The API server does not respond.
            ClusterAccessDeniedError: The operator has no access to the objects.
            HttpResponseError: Another error occurred.
        """
        try:
            answer = self._client.send_request(HttpRequest("GET", self._client.format_url(path)))
        except (ServiceRequestError, ServiceResponseError) as error:  # for example, a proxy causes the latter
            raise ClusterUnreachableError(extract_first_line(str(error))) from None
        if answer.status_code == HTTP_FORBIDDEN:
            raise ClusterAccessDeniedError(
                extract_first_line(parse_json_body(answer).get("message", "")), response=answer
            )
        map_error(answer.status_code, answer, ERROR_CLASSES_BY_STATUS)
        answer.raise_for_status()
        results: list[dict[str, Any]] = parse_json_body(answer)["items"]
        return results


def explain_cluster_error(error: Exception) -> RequestFailure:
    """Convert an exception from Azure or Kubernetes to a refusal, with an explanation and a remedy."""
    if isinstance(error, ClusterUnreachableError):
        remedy = (
            "run the command where the API server is reachable, such as on the jump host (`access` in "
            "docs/guides/azure.md)"
        )
        return RequestFailure(f"cannot reach the API server: {error.message}", remedy)
    if isinstance(error, ClusterAccessDeniedError):
        remedy = (
            "sign in as a member of a group in `admin_groups`, or with the role Azure Kubernetes Service RBAC Reader"
        )
        return RequestFailure(f"access denied by the API server: {error.message}", remedy)
    return explain_error(error)
