"""Preflight checks for Azure, which use the management SDKs with the operator's credentials."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from uuid import UUID

from azure.core.exceptions import AzureError

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.preflight.azure import quotas, registrations, roles, sizes, vaults
from voice_ops.preflight.azure.account import REPORT_AREA, Account, create_account
from voice_ops.preflight.azure.refusals import explain_error
from voice_ops.preflight.questions import RequestFailure, report_skipped_checks, run_checks
from voice_ops.preflight.quota import QUOTA_TOPIC_SUFFIX
from voice_ops.preflight.report import CheckResult

SUBSCRIPTION_VARIABLES = ("ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID")
"""Environment variables with the subscription; Pulumi's provider also uses the first."""


CHECKS_BY_TOPIC: dict[str, Callable[[Account], Iterable[CheckResult]]] = {
    "identity": roles.check_identity,
    "permissions of the deploy": roles.check_permissions,
    "permission to assign roles": roles.check_role_assignment,
    "resource providers": registrations.check_provider_registrations,
    "encryption at host": registrations.check_host_encryption,
    "administrators of the cluster": roles.check_administrator_groups,
    f"compute {QUOTA_TOPIC_SUFFIX}": quotas.compare_vcpu_quotas,
    f"network {QUOTA_TOPIC_SUFFIX}": quotas.compare_network_quotas,
    "VM sizes in the location and its zones": sizes.check_vm_sizes,
    "vaults, certificate and secrets": vaults.check_vaults,
}
"""All checks by topic, in the order in which they run."""


def run_preflight(
    deployment: Deployment, resources: Counter[str], environment: Mapping[str, str] = os.environ
) -> Iterator[CheckResult]:
    """Run all preflight checks for Azure, and list those that were skipped.

    Args:
        deployment: A deployment that has passed its checks.
        resources: Number of resources that the cluster program creates, by type such as ``network:NatGateway``.
        environment: Environment with the subscription.
    """
    subscription = find_subscription(environment)
    if isinstance(subscription, RequestFailure):
        yield from report_skipped_checks(REPORT_AREA, CHECKS_BY_TOPIC, subscription.result, subscription.remedy)
        return
    account = create_account(deployment, resources, subscription)
    questions = {topic: partial(rows_for, account) for topic, rows_for in CHECKS_BY_TOPIC.items()}
    yield from run_checks(REPORT_AREA, questions, (AzureError,), explain_error)


def find_subscription(environment: Mapping[str, str]) -> str | RequestFailure:
    """Return the subscription in an environment, or the reason why no subscription can be queried."""
    subscription = next((environment[name] for name in SUBSCRIPTION_VARIABLES if environment.get(name)), None)
    if subscription and _is_uuid(subscription):
        return subscription
    reason = f"{subscription!r} is not a subscription id" if subscription else "no subscription is set"
    return RequestFailure(
        reason, f"sign in with `az login`, and set {SUBSCRIPTION_VARIABLES[0]}", lacks_credentials=True
    )


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
