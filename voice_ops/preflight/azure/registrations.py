"""Checks for subscription registrations: resource providers, and disk encryption at the host."""

from collections.abc import Iterator

from voice_ops.preflight.azure.account import REPORT_AREA, Account
from voice_ops.preflight.report import CheckResult, create_check_result
from voice_sandbox.azure.arm import to_arm_type

REGISTERED_STATE = "Registered"
COMPUTE_PROVIDER, ENCRYPTION_FEATURE = "Microsoft.Compute", "EncryptionAtHost"
CLUSTER_PROVIDERS = {COMPUTE_PROVIDER, "Microsoft.Quota", "Microsoft.Storage"}
"""Required providers in addition to those of the program's resources: for nodes, for the quota checks, and for the
cluster's file share."""


def check_provider_registrations(account: Account) -> Iterator[CheckResult]:
    """Check the registration of every resource provider that the deploy or the cluster calls."""
    needed = CLUSTER_PROVIDERS | {to_arm_type(kind).partition("/")[0] for kind in account.resources}
    states = {
        (each.namespace or "").lower(): each.registration_state for each in account.resource_client.providers.list()
    }
    missing = sorted(name for name in needed if states.get(name.lower()) != REGISTERED_STATE)
    yield create_check_result(
        REPORT_AREA,
        "resource providers",
        f"not registered: {', '.join(missing)}" if missing else "registered",
        f"{len(needed)} providers",
        blocks="; ".join(f"az provider register --namespace {name} --wait" for name in missing),
    )


def check_host_encryption(account: Account) -> Iterator[CheckResult]:
    """Check the feature for encryption at the host, which all node pools and the jump host require."""
    feature = account.feature_client.features.get(COMPUTE_PROVIDER, ENCRYPTION_FEATURE)
    state = (feature.properties.state if feature.properties else None) or "unknown"
    remedy = (
        f"az feature register --namespace {COMPUTE_PROVIDER} --name {ENCRYPTION_FEATURE}; when `az feature show` "
        f"reports {REGISTERED_STATE}, run az provider register --namespace {COMPUTE_PROVIDER}"
    )
    yield create_check_result(
        REPORT_AREA, "encryption at host", state, REGISTERED_STATE, blocks="" if state == REGISTERED_STATE else remedy
    )
