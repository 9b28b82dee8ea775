"""The subscription that is asked, and the SDK clients that ask it."""

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
from azure.core.exceptions import ClientAuthenticationError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
from azure.core.rest import HttpRequest, HttpResponse
from azure.identity import DefaultAzureCredential
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.quota import QuotaMgmtClient
from azure.mgmt.resource.features import FeatureClient
from azure.mgmt.resource.resources import ResourceManagementClient

from blueprint.file.model.deployment import Deployment

AREA = "Azure"
SCOPE = "https://management.azure.com/.default"
GRAPH = "https://graph.microsoft.com"
"""Microsoft Graph, which knows the tenant's groups."""
RETRIES = 3
"""Attempts after the first; the SDKs wait as long as ``Retry-After`` says."""


@dataclass(frozen=True)
class Account:
    """One deployment and the subscription that it is meant for.

    Attributes:
        resources: What the cluster program creates, by type such as ``network:NatGateway``.
        options: Passed to every SDK client; a test brings a transport.
    """

    deployment: Deployment
    resources: Counter[str]
    subscription: str
    credential: TokenCredential
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def location(self) -> str:
        """The deployment's location."""
        return self.deployment.azure.location

    @cached_property
    def claims(self) -> dict[str, str]:
        """What the token says of whoever holds it: ``oid``, ``tid`` and, for users, ``upn``.

        Raises:
            ClientAuthenticationError: There is no token, or it cannot be read.
        """
        token = self.credential.get_token(SCOPE).token
        try:
            payload = token.split(".")[1]
            claims: dict[str, str] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (IndexError, binascii.Error, ValueError):
            raise ClientAuthenticationError("the access token is none of Microsoft Entra's") from None
        return claims

    @cached_property
    def compute(self) -> ComputeManagementClient:
        """Usage, SKUs and scale sets."""
        return ComputeManagementClient(self.credential, self.subscription, **self._options)

    @cached_property
    def quota(self) -> QuotaMgmtClient:
        """Limits, requests for increases, and the usage of other providers than compute."""
        return QuotaMgmtClient(self.credential, self.subscription, **self._options)

    @cached_property
    def authorization(self) -> AuthorizationManagementClient:
        """Role assignments and definitions."""
        return AuthorizationManagementClient(self.credential, self.subscription, **self._options)

    @cached_property
    def providers(self) -> ResourceManagementClient:
        """What a subscription has registered with Azure Resource Manager."""
        return ResourceManagementClient(self.credential, self.subscription, **self._options)

    @cached_property
    def features(self) -> FeatureClient:
        """Features that a subscription has to ask for."""
        return FeatureClient(self.credential, self.subscription, **self._options)

    @cached_property
    def graph(self) -> PipelineClient[HttpRequest, HttpResponse]:
        """Microsoft Graph."""
        sign_in = BearerTokenCredentialPolicy(self.credential, f"{GRAPH}/.default")
        options = dict(self._options)
        transport = {"transport": options.pop("transport")} if "transport" in options else {}
        return PipelineClient(GRAPH, policies=[RetryPolicy(**options), sign_in], **transport)

    def quota_scope(self, provider: str) -> str:
        """Return the scope of a provider's quotas in the location."""
        return f"subscriptions/{self.subscription}/providers/{provider}/locations/{self.location}"

    @property
    def _options(self) -> dict[str, Any]:
        return {"retry_total": RETRIES, **self.options}


def connect(deployment: Deployment, resources: Counter[str], subscription: str) -> Account:
    """Return the account behind the operator's own sign-in: environment, workload identity or the Azure CLI."""
    # It logs every way of signing in that it has tried, which the answer says in a line.
    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)
    return Account(deployment, resources, subscription, DefaultAzureCredential())
