"""What a preflight says of an Azure subscription: the real management SDKs against a local HTTP stub.

The stub is no recording; its payloads are serialised from the SDKs' own models (see `azure_stub`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import blueprint
from blueprint import Deployment
from blueprint.azure.names import vault
from blueprint.checks.azure_capacity import family_quota_need
from blueprint.file.model.deployment import Environment
from ops.preflight import azure
from ops.preflight.azure.account import Account
from ops.preflight.azure.permissions import allows
from ops.preflight.azure.quotas import vcpu_needs
from ops.preflight.azure.roles import administrator_rows
from ops.preflight.azure.vaults import vault_rows
from ops.preflight.report import IncreaseError, Row, Status
from tests.blueprint.documents import ABSENT, DEPLOYMENTS, edited, load_text
from tests.ops.preflight.azure_stub import (
    OWNER,
    SUBSCRIPTION,
    Operator,
    Subscription,
    ample,
    open_request,
    scale_set,
    serve,
    sku,
)
from tests.ops.preflight.conftest import bad
from tests.stacks.azure.recorded import cluster

A100 = "StandardNCADSA100v4Family"
A100_NEED = (2 * 96 + 24, 4 * 96 + 6 * 24)
"""Pools `cells` and `a100` of the production file, vCPU."""
CONTRIBUTOR = (["*"], ["Microsoft.Authorization/*/Write", "Microsoft.Authorization/*/Delete"])


GROUP = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    text = (DEPLOYMENTS / "cells.yaml").read_text(encoding="utf-8")
    return load_text(edited({"azure.admin_groups": [GROUP]}, text), tmp_path_factory.mktemp("preflight"))


@pytest.fixture
def subscription(production: Deployment) -> Subscription:
    return ample(production.azure)


@cache
def resources() -> Counter[str]:
    return cluster((DEPLOYMENTS / "cells.yaml").read_text(encoding="utf-8")).counts()


Ask = Callable[..., list[Row]]


@pytest.fixture
def ask(production: Deployment, subscription: Subscription, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    with serve(subscription) as transport:

        def asked(credential: Operator | None = None) -> list[Row]:
            def connect(deployment: Deployment, kinds: Counter[str], named: str) -> Account:
                return Account(
                    deployment,
                    kinds,
                    named,
                    credential or Operator(),
                    {"transport": transport, "retry_backoff_factor": 0},
                )

            monkeypatch.setattr(azure, "connect", connect)
            return list(azure.examine(production, resources(), {"ARM_SUBSCRIPTION_ID": SUBSCRIPTION}))

        yield asked


def the(rows: list[Row], about: str) -> Row:
    (row,) = [row for row in rows if about in row.asked]
    return row


def test_a_subscription_that_has_everything_blocks_nothing(ask: Ask) -> None:
    rows = ask()
    assert len(rows) == 2 + 3 + 1 + 6 + 2 + 7 + 7
    assert bad(rows) == []
    assert rows[0].found == "operator@example.com of tenant 7e4a"


# --- quotas ---------------------------------------------------------------------------------------------------


def test_production_without_administrators_blocks() -> None:
    def asked(deployment: Deployment) -> Row:
        (row,) = administrator_rows(Account(deployment, Counter(), SUBSCRIPTION, Operator(), {}))
        return row

    shipped = blueprint.load(DEPLOYMENTS / "cells.yaml")
    assert asked(shipped).status is Status.BLOCKS
    assert "00000000-0000-0000-0000-000000000000" in asked(shipped).found
    staging = shipped.model_copy(update={"environment": Environment.STAGING})
    assert asked(staging).status is Status.FINE


def test_a_group_that_the_tenant_does_not_have_blocks(ask: Ask, subscription: Subscription) -> None:
    assert the(ask(), "administrators").status is Status.FINE
    subscription.groups.clear()
    row = the(ask(), "administrators")
    assert (row.status, row.found) == (Status.BLOCKS, f"{GROUP}, which is nobody")


def test_a_group_that_may_not_be_read_is_told(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["/v1.0/groups/"] = (403, "Authorization_RequestDenied", "Insufficient privileges")
    row = the(ask(), "administrators")
    assert row.status is Status.WARNING
    assert f"az ad group show --group {GROUP}" in row.remedy


def test_needs_are_those_of_the_check(production: Deployment) -> None:
    needs = vcpu_needs(production.azure)
    said = {
        f"{quota}: {low} vCPU at the minimum, {high} at the maximum and in an upgrade"
        for quota, (low, high) in needs.items()
    }
    assert {violation.message for violation in family_quota_need.examine(production)} < said
    assert needs[A100] == A100_NEED
    assert needs["lowPriorityCores"] == (0, 4 * 40)
    assert needs["cores"][1] == sum(high for quota, (_, high) in needs.items() if quota.lower().startswith("standard"))


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        (A100_NEED[0] - 1, Status.BLOCKS),
        (A100_NEED[0], Status.WARNING),
        (A100_NEED[1] - 1, Status.WARNING),
        (A100_NEED[1], Status.FINE),
    ],
)
def test_a_family_is_compared_without_regard_to_case(
    ask: Ask, subscription: Subscription, limit: int, status: Status
) -> None:
    subscription.usage[A100.upper()] = (limit, 0)
    row = the(ask(), A100)
    assert row.status is status
    assert row.needed == f"{A100_NEED[0]} at the minimum, {A100_NEED[1]} at the maximum"


def test_own_nodes_are_not_others(ask: Ask, subscription: Subscription) -> None:
    subscription.usage[A100.upper()] = (1000, 292)
    assert the(ask(), A100).found == "1000 vCPU, 292 used by others"
    subscription.nodes = [scale_set("Standard_NC96ads_A100_v4", 2), scale_set("Standard_NV36ads_A10_v5", 1, "Spot")]
    subscription.usage["lowPriorityCores"] = (1000, 36)
    rows = ask()
    assert the(rows, A100).found == "1000 vCPU, 100 used by others"
    assert the(rows, "lowPriorityCores").found == "1000 vCPU, 0 used by others"
    assert the(rows, "VirtualNetworks").found == "1000 in the location, 2 used by others"


def test_a_family_that_the_subscription_does_not_have_blocks(ask: Ask, subscription: Subscription) -> None:
    del subscription.usage[A100.upper()]
    assert the(ask(), A100).status is Status.BLOCKS


def test_public_addresses_run_out(ask: Ask, subscription: Subscription) -> None:
    subscription.network["StandardSkuPublicIpAddresses"] = (2, 2)
    row = the(ask(), "StandardSkuPublicIpAddresses")
    assert (row.status, row.needed) == (Status.BLOCKS, "2 at the minimum, 2 at the maximum")


@pytest.mark.parametrize(("state", "is_open"), [("InProgress", True), ("Accepted", True), ("Failed", False)])
def test_open_requests_are_seen(ask: Ask, subscription: Subscription, state: str, is_open: bool) -> None:
    subscription.usage[A100.upper()] = (0, 0)
    subscription.requests = [open_request(A100, A100_NEED[1], state)]
    row = the(ask(), A100)
    assert row.status is Status.BLOCKS
    assert (row.increase is None) is is_open
    assert (f"{A100_NEED[1]} vCPU requested (request-1)" in row.found) is is_open


def test_an_increase_is_filed_under_the_name_that_azure_uses(ask: Ask, subscription: Subscription) -> None:
    subscription.usage[A100.upper()] = (0, 100)
    increase = the(ask(), A100).increase
    assert increase
    assert increase.file() == "the request is filed"
    assert subscription.filed == {A100.upper(): 100 + A100_NEED[1]}


def test_a_refused_increase_is_an_answer(ask: Ask, subscription: Subscription) -> None:
    subscription.usage[A100.upper()] = (0, 0)
    increase = the(ask(), A100).increase
    assert increase
    subscription.faults["/quotas/"] = (
        403,
        "AuthorizationFailed",
        "The client may not do Microsoft.Quota/quotas/write.",
    )
    with pytest.raises(IncreaseError, match=r"denied: .*Quota Request Operator"):
        increase.file()


# --- roles ----------------------------------------------------------------------------------------------------


def test_a_contributor_may_not_assign_roles(ask: Ask, subscription: Subscription) -> None:
    subscription.roles = {OWNER: CONTRIBUTOR}
    row = the(ask(), "permissions")
    assert row.status is Status.BLOCKS
    assert row.found == (
        "denied: Microsoft.Authorization/roleAssignments/delete, Microsoft.Authorization/roleAssignments/write"
    )


def test_a_right_to_assign_roles_under_a_condition_is_told(ask: Ask, subscription: Subscription) -> None:
    subscription.conditions = {OWNER: "((!(ActionMatches{'Microsoft.Authorization/roleAssignments/write'})))"}
    row = the(ask(), "right to assign roles")
    assert row.status is Status.WARNING
    assert "under the condition ((!(ActionMatches" in row.found
    assert "Acr Pull" in row.remedy


def test_a_right_without_a_condition_is_enough_beside_one_with(ask: Ask, subscription: Subscription) -> None:
    subscription.roles = {OWNER: (["*"], []), OWNER + "2": (["*"], [])}
    subscription.conditions = {OWNER: "some"}
    assert the(ask(), "right to assign roles").status is Status.FINE


def test_nobody_without_the_right_deploys(ask: Ask, subscription: Subscription) -> None:
    subscription.roles = {OWNER: CONTRIBUTOR}
    assert the(ask(), "right to assign roles").status is Status.BLOCKS


# --- registrations --------------------------------------------------------------------------------------------


def test_a_provider_that_is_not_registered_blocks(ask: Ask, subscription: Subscription) -> None:
    subscription.unregistered = {"Microsoft.Dashboard", "microsoft.storage"}
    row = the(ask(), "resource providers")
    assert (row.status, row.found) == (Status.BLOCKS, "not registered: Microsoft.Dashboard, Microsoft.Storage")
    assert "az provider register --namespace Microsoft.Dashboard --wait" in row.remedy


@pytest.mark.parametrize("state", ["NotRegistered", "Registering", "Pending"])
def test_encryption_at_host_has_to_be_registered(ask: Ask, subscription: Subscription, state: str) -> None:
    subscription.encryption = state
    row = the(ask(), "encryption at host")
    assert (row.status, row.found, row.needed) == (Status.BLOCKS, state, "Registered")
    assert "az feature register --namespace Microsoft.Compute --name EncryptionAtHost" in row.remedy


def test_a_size_whose_hosts_do_not_encrypt_blocks(ask: Ask, subscription: Subscription) -> None:
    changed = sku("Standard_NC24ads_A100_v4")
    for capability in changed.capabilities or ():
        if capability.name == "EncryptionAtHostSupported":
            capability["value"] = "False"
    _replace(subscription, changed)
    assert the(ask(), "NC24ads_A100_v4 for a100").found == "disks are not encrypted on its hosts"


def test_two_roles_may_together_suffice(ask: Ask, subscription: Subscription) -> None:
    administrator: tuple[list[str], list[str]] = (["Microsoft.Authorization/roleAssignments/*", "*/read"], [])
    subscription.roles = {OWNER: CONTRIBUTOR, OWNER + "2": administrator}
    assert the(ask(), "permissions").status is Status.FINE


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
def test_actions_match_as_azure_matches(
    action: str, actions: list[str], not_actions: list[str], expected: bool
) -> None:
    assert allows(action, actions, not_actions) is expected


# --- sizes ----------------------------------------------------------------------------------------------------


def test_a_size_that_is_not_sold_blocks(ask: Ask, subscription: Subscription) -> None:
    subscription.skus = [each for each in subscription.skus if each.name != "Standard_ND96isr_H200_v5"]
    row = the(ask(), "for h200")
    assert (row.status, row.found) == (Status.BLOCKS, "not sold in westus3")


def _replace(subscription: Subscription, *changed: object) -> None:
    names = {getattr(each, "name", None) for each in changed}
    subscription.skus = [each for each in subscription.skus if each.name not in names] + list(changed)  # type: ignore[arg-type]


def test_a_size_that_is_restricted_for_the_subscription_blocks(ask: Ask, subscription: Subscription) -> None:
    restriction = {"type": "Location", "values": ["westus3"], "reasonCode": "NotAvailableForSubscription"}
    _replace(subscription, sku("Standard_NC80adis_H100_v5", restrictions=[restriction]))
    row = the(ask(), "NC80adis_H100_v5 for h100")
    assert (row.status, row.found) == (Status.BLOCKS, "restricted: NotAvailableForSubscription")


def test_a_restricted_zone_blocks_the_pool_that_wants_it(ask: Ask, subscription: Subscription) -> None:
    restriction = {"type": "Zone", "restrictionInfo": {"zones": ["1"]}, "reasonCode": "NotAvailableForSubscription"}
    _replace(subscription, sku("Standard_NC96ads_A100_v4", restrictions=[restriction]))
    row = the(ask(), "for cells")
    assert (row.status, row.found, row.needed) == (Status.BLOCKS, "2, 3", "1")


def test_a_spot_pool_of_a_size_without_spot_blocks(ask: Ask, subscription: Subscription) -> None:
    changed = sku("Standard_NC40ads_H100_v5")
    for capability in changed.capabilities or ():
        if capability.name == "LowPriorityCapable":
            capability["value"] = "False"
    _replace(subscription, changed)
    assert the(ask(), "NC40ads_H100_v5 for h100spot").found == "not sold as spot"


def test_drift_of_the_catalogue_is_reported(ask: Ask, subscription: Subscription) -> None:
    _replace(subscription, sku("Standard_NC24ads_A100_v4", family="standardNewFamily"))
    row = the(ask(), "Standard_NC24ads_A100_v4 as the catalogue")
    assert (row.status, row.found) == (Status.WARNING, "the API says quota family standardnewfamily")


# --- faults ---------------------------------------------------------------------------------------------------


def test_throttling_is_retried_and_then_answered(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["Microsoft.Compute/skus"] = (429, "TooManyRequests", "slow down")
    row = the(ask(), "VM sizes")
    assert subscription.asked["Microsoft.Compute/skus"] == 4
    assert (row.status, row.found) == (Status.UNANSWERED, "throttled after its retries (TooManyRequests)")


def test_a_denied_question_leaves_the_others_answered(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["roleAssignments"] = (403, "AuthorizationFailed", "The client may not read role assignments.")
    rows = ask()
    row = the(rows, "permissions")
    assert row.status is Status.UNANSWERED
    assert "may not read role assignments" in row.found
    assert {each.asked for each in bad(rows)} == {row.asked, "right to assign roles"}


def test_an_unregistered_quota_provider_leaves_compute_answered(ask: Ask, subscription: Subscription) -> None:
    code = "MissingRegistrationForResourceProvider"
    subscription.faults["Microsoft.Quota"] = (409, code, "The subscription is not registered.")
    rows = ask()
    assert the(rows, A100).status is Status.FINE
    row = the(rows, "open requests of Microsoft.Compute")
    assert "az provider register --namespace Microsoft.Quota" in row.remedy


def test_an_expired_token_ends_the_questions(ask: Ask, subscription: Subscription) -> None:
    subscription.faults["/subscriptions"] = (401, "ExpiredAuthenticationToken", "The access token has expired.")
    rows = ask()
    refused = the(rows, "permissions")
    assert refused.found == "the credentials are refused (ExpiredAuthenticationToken)"
    assert {row.status for row in rows[2:]} == {Status.NOT_ASKED}


def test_nobody_signed_in_is_one_answer(ask: Ask) -> None:
    first, *others = ask(Operator("DefaultAzureCredential failed to retrieve a token.\nAttempted credentials: ..."))
    assert first.found == "no credentials: DefaultAzureCredential failed to retrieve a token."
    assert {row.status for row in others} == {Status.NOT_ASKED}


@pytest.mark.parametrize("environment", [{}, {"ARM_SUBSCRIPTION_ID": ""}, {"ARM_SUBSCRIPTION_ID": "production"}])
def test_without_a_subscription_nothing_is_asked(production: Deployment, environment: dict[str, str]) -> None:
    rows = list(azure.examine(production, resources(), environment))
    assert {row.status for row in rows} == {Status.NOT_ASKED}
    assert "ARM_SUBSCRIPTION_ID" in rows[0].remedy


def test_an_unreachable_azure_is_an_answer(
    production: Deployment, subscription: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(subscription) as transport:
        pass
    options = {"transport": transport, "retry_total": 0}
    monkeypatch.setattr(azure, "connect", lambda made, kinds, named: Account(made, kinds, named, Operator(), options))
    rows = list(azure.examine(production, resources(), {"AZURE_SUBSCRIPTION_ID": SUBSCRIPTION}))
    assert the(rows, "VM sizes").found.startswith("Azure was not reached: ")


def test_the_certificate_s_vault_and_what_agents_are_told_have_to_exist(
    subscription: Subscription, tmp_path: Path
) -> None:
    endpoint = {"kind": "endpoint", "url": "https://speech.callers.dev/v1", "model": "kokoro"}
    endpoint |= {"key_secret": "speech-key"}
    edits = {"azure.agents.speech": endpoint, "azure.agents.prompt": ABSENT, "azure.agents.prompt_secret": "our-prompt"}
    text = (DEPLOYMENTS / "production-azure.yaml").read_text(encoding="utf-8")
    deployment = load_text(edited(edits, text), tmp_path)
    own, secrets = vault(deployment, SUBSCRIPTION), ("session-token-key", "our-prompt", "speech-key")
    with serve(subscription) as transport:
        account = Account(deployment, Counter(), SUBSCRIPTION, Operator(), {"transport": transport})

        def statuses() -> dict[str, Status]:
            return {row.asked: row.status for row in vault_rows(account)}

        # Before the first deploy only the certificate's vault can be there.
        asked = {"vault of the certificate voice": Status.BLOCKS}
        assert statuses() == asked | {f"secret {name}": Status.NOT_ASKED for name in secrets}
        subscription.vaults |= {"certificates", own}
        asked = {"vault of the certificate voice": Status.FINE}
        assert statuses() == asked | {f"secret {name}": Status.BLOCKS for name in secrets}
        subscription.vaults |= {f"{own}/secrets/{name}" for name in secrets}
        assert statuses() == asked | {f"secret {name}": Status.FINE for name in secrets}
