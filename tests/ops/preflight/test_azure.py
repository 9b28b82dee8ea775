"""Preflight of an Azure subscription with the real management SDKs and a local HTTP stub.

The payloads of the stub are not recorded, but serialized from the models of the SDKs (see `azure_stub`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import voice_blueprint
from tests.blueprint.documents import ABSENT, DEPLOYMENTS, edit_document, load_text
from tests.ops.preflight.azure_stub import (
    OWNER,
    SUBSCRIPTION,
    Operator,
    Subscription,
    ample_subscription,
    open_request,
    scale_set,
    serve,
    sku,
)
from tests.ops.preflight.conftest import problem_rows
from tests.stacks.azure.recorded import cluster
from voice_blueprint import Deployment
from voice_blueprint.azure.names import build_vault_name
from voice_blueprint.checks.azure.capacity import check_family_vcpu_quotas_suffice
from voice_blueprint.file.model.deployment import Environment
from voice_ops.preflight import azure
from voice_ops.preflight.azure.account import Account
from voice_ops.preflight.azure.permissions import is_action_allowed
from voice_ops.preflight.azure.quotas import calculate_required_vcpus
from voice_ops.preflight.azure.roles import check_administrator_groups
from voice_ops.preflight.azure.vaults import check_vaults
from voice_ops.preflight.report import CheckResult, CheckStatus, QuotaIncreaseError
from voice_ops.timeouts import MAX_ATTEMPTS

A100 = "StandardNCADSA100v4Family"
A100_NEED = (2 * 96 + 24, 4 * 96 + 6 * 24)
"""Pools `cells` and `a100` of the production file, vCPU."""
CONTRIBUTOR = (["*"], ["Microsoft.Authorization/*/Write", "Microsoft.Authorization/*/Delete"])


GROUP = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    text = (DEPLOYMENTS / "cells.yaml").read_text(encoding="utf-8")
    return load_text(edit_document({"azure.admin_groups": [GROUP]}, text), tmp_path_factory.mktemp("preflight"))


@pytest.fixture
def subscription(production: Deployment) -> Subscription:
    return ample_subscription(production.azure)


@cache
def resources() -> Counter[str]:
    return cluster((DEPLOYMENTS / "cells.yaml").read_text(encoding="utf-8")).count_by_type()


Ask = Callable[..., list[CheckResult]]


@pytest.fixture
def ask(production: Deployment, subscription: Subscription, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    with serve(subscription) as transport:

        def asked(credential: Operator | None = None) -> list[CheckResult]:
            def create_account(deployment: Deployment, kinds: Counter[str], named: str) -> Account:
                return Account(
                    deployment,
                    kinds,
                    named,
                    credential or Operator(),
                    {"transport": transport, "retry_backoff_factor": 0},
                )

            monkeypatch.setattr(azure, "create_account", create_account)
            return list(azure.run_preflight(production, resources(), {"ARM_SUBSCRIPTION_ID": SUBSCRIPTION}))

        yield asked


def row_about(rows: list[CheckResult], about: str) -> CheckResult:
    (row,) = [row for row in rows if about in row.question]
    return row


def test_a_complete_subscription_has_no_blocking_result(ask: Ask) -> None:
    rows = ask()
    assert len(rows) == 2 + 3 + 1 + 6 + 2 + 7 + 7
    assert problem_rows(rows) == []
    assert rows[0].result == "operator@example.com of tenant 7e4a"


# --- quotas ---------------------------------------------------------------------------------------------------


def test_production_without_administrators_blocks() -> None:
    def asked(deployment: Deployment) -> CheckResult:
        (row,) = check_administrator_groups(Account(deployment, Counter(), SUBSCRIPTION, Operator(), {}))
        return row

    shipped = voice_blueprint.load(DEPLOYMENTS / "cells.yaml")
    assert asked(shipped).status is CheckStatus.BLOCKING
    assert "00000000-0000-0000-0000-000000000000" in asked(shipped).result
    staging = shipped.model_copy(update={"environment": Environment.STAGING})
    assert asked(staging).status is CheckStatus.PASSED


def test_a_group_that_the_tenant_does_not_have_blocks(ask: Ask, subscription: Subscription) -> None:
    assert row_about(ask(), "administrators").status is CheckStatus.PASSED
    subscription.groups.clear()
    row = row_about(ask(), "administrators")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, f"{GROUP}, which does not exist")


def test_an_unreadable_group_is_reported(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["/v1.0/groups/"] = (403, "Authorization_RequestDenied", "Insufficient privileges")
    row = row_about(ask(), "administrators")
    assert row.status is CheckStatus.WARNING
    assert f"az ad group show --group {GROUP}" in row.remedy


def test_vcpu_needs_match_the_quota_check(production: Deployment) -> None:
    needs = calculate_required_vcpus(production.azure)
    said = {
        f"{quota}: {low} vCPU at the minimum, {high} at the maximum during an upgrade"
        for quota, (low, high) in needs.items()
    }
    assert {violation.message for violation in check_family_vcpu_quotas_suffice.check_deployment(production)} < said
    assert needs[A100] == A100_NEED
    assert needs["lowPriorityCores"] == (0, 4 * 40)
    assert needs["cores"][1] == sum(high for quota, (_, high) in needs.items() if quota.lower().startswith("standard"))


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        (A100_NEED[0] - 1, CheckStatus.BLOCKING),
        (A100_NEED[0], CheckStatus.WARNING),
        (A100_NEED[1] - 1, CheckStatus.WARNING),
        (A100_NEED[1], CheckStatus.PASSED),
    ],
)
def test_vm_families_are_compared_case_insensitively(
    ask: Ask, subscription: Subscription, limit: int, status: CheckStatus
) -> None:
    subscription.usage[A100.upper()] = (limit, 0)
    row = row_about(ask(), A100)
    assert row.status is status
    assert row.needed == f"{A100_NEED[0]} at the minimum, {A100_NEED[1]} at the maximum"


def test_nodes_of_this_deployment_are_not_counted_as_others(ask: Ask, subscription: Subscription) -> None:
    subscription.usage[A100.upper()] = (1000, 292)
    assert row_about(ask(), A100).result == "1000 vCPU, 292 in use elsewhere"
    subscription.nodes = [scale_set("Standard_NC96ads_A100_v4", 2), scale_set("Standard_NV36ads_A10_v5", 1, "Spot")]
    subscription.usage["lowPriorityCores"] = (1000, 36)
    rows = ask()
    assert row_about(rows, A100).result == "1000 vCPU, 100 in use elsewhere"
    assert row_about(rows, "lowPriorityCores").result == "1000 vCPU, 0 in use elsewhere"
    assert row_about(rows, "VirtualNetworks").result == "1000 in the location, 2 in use elsewhere"


def test_a_family_that_the_subscription_does_not_have_blocks(ask: Ask, subscription: Subscription) -> None:
    del subscription.usage[A100.upper()]
    assert row_about(ask(), A100).status is CheckStatus.BLOCKING


def test_exhausted_public_addresses_block(ask: Ask, subscription: Subscription) -> None:
    subscription.network["StandardSkuPublicIpAddresses"] = (2, 2)
    row = row_about(ask(), "StandardSkuPublicIpAddresses")
    assert (row.status, row.needed) == (CheckStatus.BLOCKING, "2 at the minimum, 2 at the maximum")


@pytest.mark.parametrize(("state", "is_open"), [("InProgress", True), ("Accepted", True), ("Failed", False)])
def test_open_quota_requests_are_reported(ask: Ask, subscription: Subscription, state: str, is_open: bool) -> None:
    subscription.usage[A100.upper()] = (0, 0)
    subscription.requests = [open_request(A100, A100_NEED[1], state)]
    row = row_about(ask(), A100)
    assert row.status is CheckStatus.BLOCKING
    assert (row.increase is None) is is_open
    assert (f"{A100_NEED[1]} vCPU requested (request-1)" in row.result) is is_open


def test_an_increase_is_filed_under_the_name_that_azure_uses(ask: Ask, subscription: Subscription) -> None:
    subscription.usage[A100.upper()] = (0, 100)
    increase = row_about(ask(), A100).increase
    assert increase
    assert increase.submit() == "filed the request"
    assert subscription.filed == {A100.upper(): 100 + A100_NEED[1]}


def test_a_rejected_increase_is_reported(ask: Ask, subscription: Subscription) -> None:
    subscription.usage[A100.upper()] = (0, 0)
    increase = row_about(ask(), A100).increase
    assert increase
    subscription.faults["/quotas/"] = (
        403,
        "AuthorizationFailed",
        "The client may not do Microsoft.Quota/quotas/write.",
    )
    with pytest.raises(QuotaIncreaseError, match=r"access denied: .*Quota Request Operator"):
        increase.submit()


# --- roles ----------------------------------------------------------------------------------------------------


def test_a_contributor_cannot_assign_roles(ask: Ask, subscription: Subscription) -> None:
    subscription.roles = {OWNER: CONTRIBUTOR}
    row = row_about(ask(), "permissions")
    assert row.status is CheckStatus.BLOCKING
    assert row.result == (
        "denied: Microsoft.Authorization/roleAssignments/delete, Microsoft.Authorization/roleAssignments/write"
    )


def test_a_conditional_right_to_assign_roles_is_reported(ask: Ask, subscription: Subscription) -> None:
    subscription.conditions = {OWNER: "((!(ActionMatches{'Microsoft.Authorization/roleAssignments/write'})))"}
    row = row_about(ask(), "permission to assign roles")
    assert row.status is CheckStatus.WARNING
    assert "under the condition ((!(ActionMatches" in row.result
    assert "Acr Pull" in row.remedy


def test_an_unconditional_role_assignment_is_sufficient(ask: Ask, subscription: Subscription) -> None:
    subscription.roles = {OWNER: (["*"], []), OWNER + "2": (["*"], [])}
    subscription.conditions = {OWNER: "some"}
    assert row_about(ask(), "permission to assign roles").status is CheckStatus.PASSED


def test_missing_deploy_permission_blocks(ask: Ask, subscription: Subscription) -> None:
    subscription.roles = {OWNER: CONTRIBUTOR}
    assert row_about(ask(), "permission to assign roles").status is CheckStatus.BLOCKING


# --- registrations --------------------------------------------------------------------------------------------


def test_a_provider_that_is_not_registered_blocks(ask: Ask, subscription: Subscription) -> None:
    subscription.unregistered = {"Microsoft.Dashboard", "microsoft.storage"}
    row = row_about(ask(), "resource providers")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "not registered: Microsoft.Dashboard, Microsoft.Storage")
    assert "az provider register --namespace Microsoft.Dashboard --wait" in row.remedy


@pytest.mark.parametrize("state", ["NotRegistered", "Registering", "Pending"])
def test_encryption_at_host_must_be_registered(ask: Ask, subscription: Subscription, state: str) -> None:
    subscription.encryption = state
    row = row_about(ask(), "encryption at host")
    assert (row.status, row.result, row.needed) == (CheckStatus.BLOCKING, state, "Registered")
    assert "az feature register --namespace Microsoft.Compute --name EncryptionAtHost" in row.remedy


def test_a_size_without_encryption_at_host_is_blocked(ask: Ask, subscription: Subscription) -> None:
    changed = sku("Standard_NC24ads_A100_v4")
    for capability in changed.capabilities or ():
        if capability.name == "EncryptionAtHostSupported":
            capability["value"] = "False"
    _replace(subscription, changed)
    assert row_about(ask(), "NC24ads_A100_v4 for a100").result == "encryption at host is not supported"


def test_two_roles_may_be_sufficient_together(ask: Ask, subscription: Subscription) -> None:
    administrator: tuple[list[str], list[str]] = (["Microsoft.Authorization/roleAssignments/*", "*/read"], [])
    subscription.roles = {OWNER: CONTRIBUTOR, OWNER + "2": administrator}
    assert row_about(ask(), "permissions").status is CheckStatus.PASSED


@pytest.mark.parametrize(
    ("action", "actions", "not_actions", "expected"),
    [
        ("Microsoft.Network/natGateways/write", ["*"], [], True),
        ("Microsoft.Network/natGateways/write", ["microsoft.network/*"], [], True),
        ("Microsoft.Network/natGateways/write", ["*/read"], [], False),
        ("Microsoft.Network/natGateways/write", ["*"], ["Microsoft.Network/*/write"], False),
        ("Microsoft.Network/natGateways/write", [], [], False),
    ],
)
def test_action_wildcards_match_like_azure(
    action: str, actions: list[str], not_actions: list[str], expected: bool
) -> None:
    assert is_action_allowed(action, actions, not_actions) is expected


# --- sizes ----------------------------------------------------------------------------------------------------


def test_a_size_that_is_not_sold_blocks(ask: Ask, subscription: Subscription) -> None:
    subscription.skus = [each for each in subscription.skus if each.name != "Standard_ND96isr_H200_v5"]
    row = row_about(ask(), "for h200")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "not sold in westus3")


def _replace(subscription: Subscription, *changed: object) -> None:
    names = {getattr(each, "name", None) for each in changed}
    subscription.skus = [each for each in subscription.skus if each.name not in names] + list(changed)  # type: ignore[arg-type]


def test_a_size_that_is_restricted_for_the_subscription_blocks(ask: Ask, subscription: Subscription) -> None:
    restriction = {"type": "Location", "values": ["westus3"], "reasonCode": "NotAvailableForSubscription"}
    _replace(subscription, sku("Standard_NC80adis_H100_v5", restrictions=[restriction]))
    row = row_about(ask(), "NC80adis_H100_v5 for h100")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "restricted: NotAvailableForSubscription")


def test_a_restricted_zone_blocks_a_pool_that_requires_it(ask: Ask, subscription: Subscription) -> None:
    restriction = {"type": "Zone", "restrictionInfo": {"zones": ["1"]}, "reasonCode": "NotAvailableForSubscription"}
    _replace(subscription, sku("Standard_NC96ads_A100_v4", restrictions=[restriction]))
    row = row_about(ask(), "for cells")
    assert (row.status, row.result, row.needed) == (CheckStatus.BLOCKING, "2, 3", "1")


def test_a_spot_pool_of_a_size_without_spot_blocks(ask: Ask, subscription: Subscription) -> None:
    changed = sku("Standard_NC40ads_H100_v5")
    for capability in changed.capabilities or ():
        if capability.name == "LowPriorityCapable":
            capability["value"] = "False"
    _replace(subscription, changed)
    assert row_about(ask(), "NC40ads_H100_v5 for h100spot").result == "not sold as spot"


def test_drift_of_the_catalogue_is_reported(ask: Ask, subscription: Subscription) -> None:
    _replace(subscription, sku("Standard_NC24ads_A100_v4", family="standardNewFamily"))
    row = row_about(ask(), "Standard_NC24ads_A100_v4 in the catalogue")
    assert (row.status, row.result) == (CheckStatus.WARNING, "the API returns quota family standardnewfamily")


# --- faults ---------------------------------------------------------------------------------------------------


def test_throttled_queries_are_retried(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["Microsoft.Compute/skus"] = (429, "TooManyRequests", "slow down")
    row = row_about(ask(), "VM sizes")
    assert subscription.asked["Microsoft.Compute/skus"] == MAX_ATTEMPTS
    assert (row.status, row.result) == (
        CheckStatus.UNKNOWN,
        "the request was throttled after retries (TooManyRequests)",
    )


def test_a_denied_query_does_not_affect_the_others(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["roleAssignments"] = (403, "AuthorizationFailed", "The client may not read role assignments.")
    rows = ask()
    row = row_about(rows, "permissions")
    assert row.status is CheckStatus.UNKNOWN
    assert "may not read role assignments" in row.result
    assert {each.question for each in problem_rows(rows)} == {row.question, "permission to assign roles"}


def test_an_unregistered_quota_provider_does_not_affect_compute_queries(ask: Ask, subscription: Subscription) -> None:
    code = "MissingRegistrationForResourceProvider"
    subscription.faults["Microsoft.Quota"] = (409, code, "The subscription is not registered.")
    rows = ask()
    assert row_about(rows, A100).status is CheckStatus.PASSED
    row = row_about(rows, "open requests of Microsoft.Compute")
    assert "az provider register --namespace Microsoft.Quota" in row.remedy


def test_an_expired_token_ends_the_queries(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["/subscriptions"] = (401, "ExpiredAuthenticationToken", "The access token has expired.")
    rows = ask()
    refused = row_about(rows, "permissions")
    assert refused.result == "the credentials were rejected (ExpiredAuthenticationToken)"
    assert {row.status for row in rows[2:]} == {CheckStatus.SKIPPED}


def test_a_missing_sign_in_is_reported_once(ask: Ask) -> None:
    first, *others = ask(Operator("DefaultAzureCredential failed to retrieve a token.\nAttempted credentials: ..."))
    assert first.result == "no credentials were found: DefaultAzureCredential failed to retrieve a token."
    assert {row.status for row in others} == {CheckStatus.SKIPPED}


@pytest.mark.parametrize("environment", [{}, {"ARM_SUBSCRIPTION_ID": ""}, {"ARM_SUBSCRIPTION_ID": "production"}])
def test_without_a_subscription_no_request_is_made(production: Deployment, environment: dict[str, str]) -> None:
    rows = list(azure.run_preflight(production, resources(), environment))
    assert {row.status for row in rows} == {CheckStatus.SKIPPED}
    assert "ARM_SUBSCRIPTION_ID" in rows[0].remedy


def test_an_unreachable_azure_is_reported(
    production: Deployment, subscription: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(subscription) as transport:
        pass
    options = {"transport": transport, "retry_total": 0}
    monkeypatch.setattr(
        azure, "create_account", lambda made, kinds, named: Account(made, kinds, named, Operator(), options)
    )
    rows = list(azure.run_preflight(production, resources(), {"AZURE_SUBSCRIPTION_ID": SUBSCRIPTION}))
    assert row_about(rows, "VM sizes").result.startswith("cannot reach Azure: ")


def test_the_certificate_vault_and_references_of_agents_must_exist(subscription: Subscription, tmp_path: Path) -> None:
    endpoint = {"kind": "endpoint", "url": "https://speech.callers.dev/v1", "model": "kokoro"}
    endpoint |= {"key_secret": "speech-key"}
    edits = {"azure.agents.speech": endpoint, "azure.agents.prompt": ABSENT, "azure.agents.prompt_secret": "our-prompt"}
    text = (DEPLOYMENTS / "production-azure.yaml").read_text(encoding="utf-8")
    deployment = load_text(edit_document(edits, text), tmp_path)
    own, secrets = build_vault_name(deployment, SUBSCRIPTION), ("session-token-key", "our-prompt", "speech-key")
    with serve(subscription) as transport:
        account = Account(deployment, Counter(), SUBSCRIPTION, Operator(), {"transport": transport})

        def statuses() -> dict[str, CheckStatus]:
            return {row.question: row.status for row in check_vaults(account)}

        # Before the first deployment only the certificate's vault can exist.
        asked = {"vault of the certificate voice": CheckStatus.BLOCKING}
        assert statuses() == asked | {f"secret {name}": CheckStatus.SKIPPED for name in secrets}
        subscription.vaults |= {"certificates", own}
        asked = {"vault of the certificate voice": CheckStatus.PASSED}
        assert statuses() == asked | {f"secret {name}": CheckStatus.BLOCKING for name in secrets}
        subscription.vaults |= {f"{own}/secrets/{name}" for name in secrets}
        assert statuses() == asked | {f"secret {name}": CheckStatus.PASSED for name in secrets}
