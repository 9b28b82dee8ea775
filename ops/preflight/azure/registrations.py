"""What a subscription has to be registered for: resource providers, and the encryption of disks on their hosts."""

from collections.abc import Iterator

from ops.preflight.azure.account import AREA, Account
from ops.preflight.report import Row, answer
from sandbox.azure.arm import arm_type

REGISTERED = "Registered"
COMPUTE, ENCRYPTION = "Microsoft.Compute", "EncryptionAtHost"
OF_THE_CLUSTER = {COMPUTE, "Microsoft.Quota", "Microsoft.Storage"}
"""Beside those of the program's resources: nodes, this preflight's quotas, and the share that the cluster makes."""


def provider_rows(account: Account) -> Iterator[Row]:
    """Ask whether every resource provider is registered that the deploy, or the cluster after it, calls."""
    needed = OF_THE_CLUSTER | {arm_type(kind).partition("/")[0] for kind in account.resources}
    states = {(each.namespace or "").lower(): each.registration_state for each in account.providers.providers.list()}
    missing = sorted(name for name in needed if states.get(name.lower()) != REGISTERED)
    yield answer(
        AREA,
        "resource providers",
        f"not registered: {', '.join(missing)}" if missing else "registered",
        f"{len(needed)} providers",
        blocks="; ".join(f"az provider register --namespace {name} --wait" for name in missing),
    )


def encryption_rows(account: Account) -> Iterator[Row]:
    """Ask for the feature that every node pool and the jump host need: their disks are encrypted on the host."""
    feature = account.features.features.get(COMPUTE, ENCRYPTION)
    state = (feature.properties.state if feature.properties else None) or "unknown"
    remedy = (
        f"az feature register --namespace {COMPUTE} --name {ENCRYPTION}; when `az feature show` says {REGISTERED}: "
        f"az provider register --namespace {COMPUTE}"
    )
    yield answer(AREA, "encryption at host", state, REGISTERED, blocks="" if state == REGISTERED else remedy)
