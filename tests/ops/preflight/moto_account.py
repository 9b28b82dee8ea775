"""Extensions of moto: Service Quotas with increase requests, and IAM's policy simulator.

The simulator evaluates the stored policies with moto's own evaluation. Quotas and requests are stored in a dictionary;
botocore's service model validates every response.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.iam.responses import IamResponse
from moto.servicequotas.responses import ServiceQuotasResponse

CREATED = 1_790_000_000
"""Time of the requests, s since 1970: 2026-09-21."""


@dataclass
class Quotas:
    """The quotas of an account by service and code, and the requests for increases."""

    values: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)

    def request(self, service: str, code: str, desired: float, status: str = "PENDING") -> dict[str, Any]:
        made = {
            "Id": f"request-{len(self.requests) + 1}",
            "ServiceCode": service,
            "QuotaCode": code,
            "DesiredValue": desired,
            "Status": status,
            "Created": CREATED,
        }
        self.requests.append(made)
        return made


def install(monkeypatch: pytest.MonkeyPatch) -> Quotas:
    """Add the missing calls to moto for the duration of a test."""
    quotas = Quotas()

    def quota(response: ServiceQuotasResponse) -> str:
        asked = json.loads(response.body)
        key = asked["ServiceCode"], asked["QuotaCode"]
        if key not in quotas.values:
            raise JsonRESTError("NoSuchResourceException", "The request failed because the specified quota is unknown.")
        name, value = quotas.values[key]
        return json.dumps({"Quota": {"QuotaCode": key[1], "ServiceCode": key[0], "QuotaName": name, "Value": value}})

    def history(response: ServiceQuotasResponse) -> str:
        service = json.loads(response.body)["ServiceCode"]
        return json.dumps({"RequestedQuotas": [r for r in quotas.requests if r["ServiceCode"] == service]})

    def increase(response: ServiceQuotasResponse) -> str:
        asked = json.loads(response.body)
        key = asked["ServiceCode"], asked["QuotaCode"]
        if any((r["ServiceCode"], r["QuotaCode"]) == key and r["Status"] == "PENDING" for r in quotas.requests):
            raise JsonRESTError(
                "ResourceAlreadyExistsException", "Only one open service quota increase request is allowed"
            )
        return json.dumps({"RequestedQuota": quotas.request(*key, asked["DesiredValue"])})

    monkeypatch.setattr(ServiceQuotasResponse, "get_service_quota", quota)
    monkeypatch.setattr(ServiceQuotasResponse, "get_aws_default_service_quota", quota, raising=False)
    monkeypatch.setattr(ServiceQuotasResponse, "list_requested_service_quota_change_history", history, raising=False)
    monkeypatch.setattr(ServiceQuotasResponse, "request_service_quota_increase", increase, raising=False)
    monkeypatch.setattr(IamResponse, "simulate_principal_policy", _simulate, raising=False)
    return quotas


def _simulate(response: IamResponse) -> ActionResult:
    kind, _, path = response._get_param("PolicySourceArn").rpartition(":")[2].partition("/")
    name = path.rpartition("/")[2]
    owner = response.backend.get_role(name) if kind == "role" else response.backend.get_user(name)
    documents = [*owner.policies.values(), *owner.managed_policies.values()]
    (resource,) = response._get_param("ResourceArns")
    results = [
        {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": _decide(documents, action, resource)}
        for action in response._get_param("ActionNames")
    ]
    return ActionResult({"EvaluationResults": results, "IsTruncated": False})


def _decide(documents: list[Any], action: str, resource: str) -> str:
    decisions = {IAMPolicy(document).is_action_permitted(action, resource) for document in documents}
    if PermissionResult.DENIED in decisions:
        return "explicitDeny"
    return "allowed" if PermissionResult.PERMITTED in decisions else "implicitDeny"
