"""Azure subscription for a deployment, and the SDK clients that query it."""

import base64
import binascii
import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from azure.core import PipelineClient
from azure.core.credentials import TokenCredential
from azure.core.exceptions import ClientAuthenticationError, DecodeError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
from azure.core.rest import HttpRequest, HttpResponse
from azure.identity import DefaultAzureCredential
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.quota import QuotaMgmtClient
from azure.mgmt.resource.features import FeatureClient
from azure.mgmt.resource.resources import ResourceManagementClient

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.timeouts import CONNECT_TIMEOUT_S, MAX_ATTEMPTS, READ_TIMEOUT_S

REPORT_AREA = "Azure"
MANAGEMENT_SCOPE = "https://management.azure.com/.default"
GRAPH_URL = "https://graph.microsoft.com"
"""Endpoint of Microsoft Graph, which lists the tenant's groups."""

CLIENT_OPTIONS = {
    "retry_total": MAX_ATTEMPTS - 1,
    "connection_timeout": CONNECT_TIMEOUT_S,
    "read_timeout": READ_TIMEOUT_S,
}
"""Timeouts and retries for every SDK client. Between attempts, the SDKs wait according to ``Retry-After``."""


def parse_json_body(response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object in a response.

    Raises:
        DecodeError: The body is not JSON, for example a proxy's page.
    """
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise DecodeError("the response did not come from Azure", response=response)
    return body


@dataclass(frozen=True)
class Account:
    """A deployment and its Azure subscription.

    Attributes:
        resources: Number of resources that the cluster program creates, by type such as ``network:NatGateway``.
        options: Options of every SDK client; tests set a transport.
    """

    deployment: Deployment
    resources: Counter[str]
    subscription: str
    credential: TokenCredential
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def location(self) -> str:
        """Azure location of the deployment, such as ``westeurope``."""
        return self.deployment.azure.location

    @cached_property
    def claims(self) -> dict[str, str]:
        """Claims of the token: ``oid``, ``tid`` and, for users, ``upn``.

        Raises:
            ClientAuthenticationError: There is no token, or it cannot be parsed.
        """
        token = self.credential.get_token(MANAGEMENT_SCOPE).token
        try:
            payload = token.split(".")[1]
            claims: dict[str, str] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (IndexError, binascii.Error, ValueError):
            raise ClientAuthenticationError("the access token was not issued by Microsoft Entra") from None
        return claims

    @cached_property
    def compute_client(self) -> ComputeManagementClient:
        """Client for usage, SKUs and scale sets."""
        return ComputeManagementClient(self.credential, self.subscription, **self._client_options)

    @cached_property
    def quota_client(self) -> QuotaMgmtClient:
        """Client for limits, increase requests, and the usage of providers other than compute."""
        return QuotaMgmtClient(self.credential, self.subscription, **self._client_options)

    @cached_property
    def authorization_client(self) -> AuthorizationManagementClient:
        """Client for role assignments and definitions."""
        return AuthorizationManagementClient(self.credential, self.subscription, **self._client_options)

    @cached_property
    def resource_client(self) -> ResourceManagementClient:
        """Client for subscription registrations with Azure Resource Manager."""
        return ResourceManagementClient(self.credential, self.subscription, **self._client_options)

    @cached_property
    def feature_client(self) -> FeatureClient:
        """Client for features that must be registered for a subscription."""
        return FeatureClient(self.credential, self.subscription, **self._client_options)

    @cached_property
    def graph_client(self) -> PipelineClient[HttpRequest, HttpResponse]:
        """Client for Microsoft Graph."""
        sign_in = BearerTokenCredentialPolicy(self.credential, f"{GRAPH_URL}/.default")
        options = dict(self._client_options)
        limits = {key: options.pop(key) for key in ("connection_timeout", "read_timeout")}
        transport = {"transport": options.pop("transport")} if "transport" in options else {}
        return PipelineClient(GRAPH_URL, policies=[RetryPolicy(**options), sign_in], **(transport or limits))

    def build_quota_scope(self, provider: str) -> str:
        """Return the scope of a provider's quotas in the location."""
        return f"subscriptions/{self.subscription}/providers/{provider}/locations/{self.location}"

    @property
    def _client_options(self) -> dict[str, Any]:
        return {**CLIENT_OPTIONS, **self.options}


def create_account(deployment: Deployment, resources: Counter[str], subscription: str) -> Account:
    """Return an account with the operator's credentials from the environment, workload identity or the Azure CLI."""
    # The SDK logs all attempted sign-in methods, which the result summarizes in one line.
    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)
    return Account(deployment, resources, subscription, DefaultAzureCredential())
