"""Local HTTP server that replaces Azure Resource Manager for the real management SDKs.

Nothing here is a recording, because no subscription was available. Every payload is serialised from the SDKs' own
models, so its fields have Microsoft's names and types; values and errors follow its documentation.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import jwt
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.core.pipeline.transport import HttpRequest, RequestsTransport
from azure.mgmt.authorization.v2022_04_01 import models as authorization
from azure.mgmt.compute import models as compute
from azure.mgmt.quota import models as quota
from azure.mgmt.resource.features import models as features
from azure.mgmt.resource.resources import models as resources

from voice_blueprint import catalog
from voice_blueprint.file.model.azure import Azure, JumpHost

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
ARM, GRAPH = "https://management.azure.com", "https://graph.microsoft.com"
GROUPS = "/v1.0/groups/"
"""Path of Microsoft Graph: https://learn.microsoft.com/graph/api/group-get"""
OWNER = "/subscriptions/x/providers/Microsoft.Authorization/roleDefinitions/owner"
PROVIDERS = [
    *("Microsoft.AlertsManagement", "Microsoft.Consumption"),
    *("Microsoft.Authorization", "Microsoft.Compute", "Microsoft.ContainerRegistry", "Microsoft.ContainerService"),
    *("Microsoft.Dashboard", "Microsoft.Insights", "Microsoft.KeyVault", "Microsoft.KubernetesConfiguration"),
    *("Microsoft.ManagedIdentity", "Microsoft.Monitor", "Microsoft.Network", "Microsoft.OperationalInsights"),
    *("Microsoft.Quota", "Microsoft.Resources", "microsoft.storage"),
]
"""Azure returns some names in lower case."""
SIGNING_KEY = "a key of this test that nobody verifies tokens with"


@dataclass
class Subscription:
    """Responses of the stub: tests change them before they send requests.

    Attributes:
        usage: Limit and use of Microsoft.Compute's quotas, by name.
        network: Likewise for Microsoft.Network.
        roles: Actions and exclusions of the caller's roles, by role definition.
        skus: VM sizes that the location sells.
        nodes: Scale sets of the deployment; absent before the first deploy.
        requests: Requests for increases, open and closed.
        filed: Requested limits, by quota.
        conditions: Conditions of roles, by role definition.
        unregistered: Resource providers that the subscription is not registered for.
        groups: Groups of the tenant.
        encryption: State of the feature EncryptionAtHost.
        vaults: Suffixes of the paths of vaults and of their secrets.
        faults: Status, code and message for paths that contain a text.
        asked: Number of requests that met each fault.
    """

    usage: dict[str, tuple[int, int]] = field(default_factory=dict)
    network: dict[str, tuple[int, int]] = field(default_factory=dict)
    roles: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    skus: list[compute.ResourceSku] = field(default_factory=list)
    nodes: list[compute.VirtualMachineScaleSet] | None = None
    requests: list[quota.QuotaRequestDetails] = field(default_factory=list)
    filed: dict[str, int] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    unregistered: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    encryption: str = "Registered"
    vaults: set[str] = field(default_factory=set)
    faults: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)

    def answer(  # noqa: C901, PLR0911  one return per route
        self, method: str, path: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """Return the response to a request."""
        for part, (status, code, message) in self.faults.items():
            if part in path:
                self.asked[part] += 1
                return status, {"error": {"code": code, "message": message}}
        if method == "PUT":
            return self._request(path, body)
        if path.startswith(GROUPS):
            group = path.removeprefix(GROUPS)
            return (HTTPStatus.OK, {"id": group}) if group in self.groups else (HTTPStatus.NOT_FOUND, {})
        if "/Microsoft.KeyVault/vaults/" in path:
            known = path.partition("/vaults/")[2] in self.vaults
            return (200, {"id": path}) if known else (404, {"error": {"code": "ResourceNotFound", "message": "none"}})
        last = path.rpartition("/")[2]
        if "/providers/Microsoft.Quota/" in path:
            return 200, self._quota(path, last)
        routes = {
            "usages": lambda: [_usage(name, *numbers) for name, numbers in self.usage.items()],
            "skus": lambda: [sku.as_dict() for sku in self.skus],
            "roleAssignments": lambda: [_assignment(role, self.conditions.get(role)) for role in self.roles],
            "providers": lambda: [_provider(name, name not in self.unregistered) for name in PROVIDERS],
        }
        if last in routes:
            return 200, {"value": routes[last]()}
        if last == "EncryptionAtHost":
            state = features.FeatureProperties(state=self.encryption)
            return 200, dict(features.FeatureResult(name=f"Microsoft.Compute/{last}", properties=state).serialize())
        if last == "virtualMachineScaleSets":
            if self.nodes is None:
                return 404, {
                    "error": {"code": "ResourceGroupNotFound", "message": "Resource group could not be found."}
                }
            return 200, {"value": [scale_set.as_dict() for scale_set in self.nodes]}
        if "roleDefinitions" in path:
            return 200, _definition(*self.roles[path])
        raise AssertionError(f"the stub knows nothing of {method} {path}")

    def _quota(self, path: str, name: str) -> dict[str, Any]:
        if name == "quotaRequests":
            return {"value": [request.as_dict() for request in self.requests]}
        limit, used = self.network[name]
        if "/usages/" in path:
            return quota.CurrentUsagesBase(
                properties=quota.UsagesProperties(usages=quota.UsagesObject(value=used))
            ).as_dict()
        return quota.CurrentQuotaLimitBase(
            properties=quota.QuotaProperties(limit=quota.LimitObject(value=limit))
        ).as_dict()

    def _request(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        request = quota.CurrentQuotaLimitBase(body)
        assert request.properties
        assert isinstance(request.properties.limit, quota.LimitObject)
        self.filed[path.rpartition("/")[2]] = request.properties.limit.value
        return 202, {}


def open_request(name: str, limit: int, state: str = "InProgress") -> quota.QuotaRequestDetails:
    """Return a request for an increase in the format of the SDK's model."""
    part = quota.SubRequest({"name": {"value": name}, "limit": quota.LimitObject(value=limit).as_dict()})
    return quota.QuotaRequestDetails({"name": "request-1", "properties": {"provisioningState": state, "value": [part]}})


def sku(name: str, zones: tuple[str, ...] = ("1", "2", "3"), **changes: object) -> compute.ResourceSku:
    """Return a VM size from the catalogue, sold without restrictions; ``changes`` are fields of the SDK's model."""
    size = catalog.vm_sizes()[name]
    facts = {
        "vCPUs": str(size.vcpus),
        "GPUs": str(size.gpu_count),
        "RdmaEnabled": str(size.rdma),
        "LowPriorityCapable": str(size.spot),
        "EncryptionAtHostSupported": "True",
    }
    fields = {
        "resourceType": "virtualMachines",
        "name": name,
        "family": size.quota_family,
        "locationInfo": [{"location": "westus3", "zones": list(zones)}],
        "capabilities": [{"name": key, "value": value} for key, value in facts.items()],
        "restrictions": [],
    }
    return compute.ResourceSku(fields | changes)


def scale_set(vm_size: str, nodes: int, priority: str = "Regular") -> compute.VirtualMachineScaleSet:
    """Return the scale set of a pool."""
    return compute.VirtualMachineScaleSet(
        location="westus3",
        sku=compute.Sku(name=vm_size, capacity=nodes),
        properties=compute.VirtualMachineScaleSetProperties(
            virtual_machine_profile=compute.VirtualMachineScaleSetVMProfile(priority=priority)
        ),
    )


def ample_subscription(azure: Azure) -> Subscription:
    """Return a subscription that accepts the deployment.

    Names of VM families use the case of Azure's usage API, which differs.
    """
    sizes = {pool.vm_size for pool in azure.pools} | {azure.system_pool.vm_size}
    if isinstance(azure.access, JumpHost):
        sizes.add(azure.access.vm_size)
    families = {catalog.vm_sizes()[name].quota_family.upper() for name in sizes}
    return Subscription(
        usage=dict.fromkeys([*families, "cores", "lowPriorityCores"], (10_000, 0)),
        network={"VirtualNetworks": (1000, 3), "StandardSkuPublicIpAddresses": (20, 2)},
        roles={OWNER: (["*"], [])},
        skus=[sku(name) for name in sizes],
        groups=set(azure.admin_groups),
    )


class Operator:
    """Credential whose tokens contain the user, like tokens of Microsoft Entra."""

    def __init__(self, error: str | None = None) -> None:
        self._error = error

    def get_token(self, *_: str, **__: object) -> AccessToken:
        if self._error:
            raise ClientAuthenticationError(self._error)
        claims = {"oid": "0b3ec000-0000-4000-8000-000000000001", "tid": "7e4a", "upn": "operator@example.com"}
        return AccessToken(jwt.encode(claims, SIGNING_KEY), int(time.time()) + 3600)


class StubTransport(RequestsTransport):  # type: ignore[misc]
    """Sends requests for Azure Resource Manager to the stub: the SDKs insist on https for tokens."""

    def __init__(self, stub: str) -> None:
        super().__init__()
        self._stub = stub

    def send(self, request: HttpRequest, **options: object) -> object:
        asked = request.url
        request.url = asked.replace(ARM, self._stub).replace(GRAPH, self._stub)
        try:
            return super().send(request, **options)
        finally:
            request.url = asked  # a retry passes through the policies again, which require https


@contextmanager
def serve(subscription: Subscription) -> Iterator[StubTransport]:
    """Serve a subscription on a free local port; yield the transport that reaches it."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            status, answer = subscription.answer(self.command, unquote(urlsplit(self.path).path), body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if status == HTTPStatus.TOO_MANY_REQUESTS:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = _answer  # noqa: N815  names that http.server asks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield StubTransport(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


def _usage(name: str, limit: int, used: int) -> dict[str, Any]:
    return compute.Usage(name=compute.UsageName(value=name), limit=limit, current_value=used).as_dict()


def _assignment(role: str, condition: str | None) -> dict[str, Any]:
    assignment = authorization.RoleAssignment(role_definition_id=role, principal_id="somebody", condition=condition)
    return dict(assignment.serialize())


def _provider(name: str, registered: bool) -> dict[str, Any]:
    return resources.Provider(
        {"namespace": name, "registrationState": "Registered" if registered else "NotRegistered"}
    ).as_dict()


def _definition(actions: list[str], not_actions: list[str]) -> dict[str, Any]:
    permission = authorization.Permission(actions=actions, not_actions=not_actions)
    return dict(authorization.RoleDefinition(permissions=[permission]).serialize())
