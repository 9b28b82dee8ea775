"""Checks of compute and network quotas: limits, usage by others, the deployment's need, and pending requests."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.mgmt.quota import models

from voice_blueprint import catalog
from voice_blueprint.azure import names as azure_names
from voice_blueprint.checks.azure.capacity import SPOT_QUOTA, quota_usages
from voice_blueprint.file.model.azure import Azure
from voice_ops.preflight.azure.account import AREA, Account
from voice_ops.preflight.azure.refusals import explain
from voice_ops.preflight.quota import PendingRequest, QuotaState, quota_row
from voice_ops.preflight.report import IncreaseError, Row, Status

COMPUTE_PROVIDER, NETWORK_PROVIDER = "Microsoft.Compute", "Microsoft.Network"
REGIONAL_QUOTA = "cores"
"""Quota of all vCPUs of a location except those of spot nodes."""
OPEN_STATES = {"Accepted", "InProgress"}
NETWORK_QUOTAS = {
    "VirtualNetworks": "network:VirtualNetwork",
    "StandardSkuPublicIpAddresses": "network:PublicIPAddress",
}
"""Resource type that counts against each quota of Microsoft.Network, by the name of the quota."""


def vcpu_needs(azure: Azure) -> dict[str, tuple[int, int]]:
    """Return the vCPUs at the minimum and at the maximum, by quota.

    Each family, the location, and spot nodes have a quota. The maximum includes the surge nodes of an upgrade.
    """
    needs: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for part in quota_usages(azure):
        for quota in (SPOT_QUOTA,) if part.quota == SPOT_QUOTA else (part.quota, REGIONAL_QUOTA):
            low, high = needs[quota]
            needs[quota] = (low + part.min_vcpus, high + part.max_vcpus)
    return dict(needs)


def compute_rows(account: Account) -> Iterator[Row]:
    """Compare the vCPU quotas with the need of the deployment. The case of family names is ignored."""
    usage = {(row.name.value or "").lower(): row for row in account.compute.usage.list(account.location)}
    own_vcpus = _count_own_vcpus(account) or Counter()
    pending, refusal = _open_requests(account, COMPUTE_PROVIDER)
    yield from refusal
    for name, (low, high) in vcpu_needs(account.deployment.azure).items():
        row = usage.get(name.lower())
        if row is None:
            yield Row(
                AREA,
                f"quota: {name}",
                Status.BLOCKS,
                f"{account.location} has no such quota for this subscription",
                f"{low} at the minimum, {high} at the maximum",
                "the size is not available to the subscription there: contact Azure support, or use another location",
            )
            continue
        others = max(0, row.current_value - own_vcpus[name.lower()])
        state = QuotaState(name, "vCPU", row.limit, others, low, high)
        yield _state_row(account, COMPUTE_PROVIDER, state, row.name.value or name, pending)


def network_rows(account: Account) -> Iterator[Row]:
    """Compare the quotas of virtual networks and public addresses with the resources of the cluster program."""
    scope = account.quota_scope(NETWORK_PROVIDER)
    pending, refusal = _open_requests(account, NETWORK_PROVIDER)
    yield from refusal
    deployed = _count_own_vcpus(account) is not None
    for name, kind in NETWORK_QUOTAS.items():
        need = account.resources[kind]
        limit = account.quota.quota.get(name, scope).properties
        used = account.quota.usages.get(name, scope).properties
        if limit is None or used is None or not isinstance(limit.limit, models.LimitObject) or used.usages is None:
            yield Row(AREA, f"quota: {name}", Status.UNANSWERED, "Azure returns no limit", f"{need}", "see the portal")
            continue
        others = max(0, used.usages.value - (need if deployed else 0))
        state = QuotaState(name, "in the location", limit.limit.value, others, need, need)
        yield _state_row(account, NETWORK_PROVIDER, state, name, pending)


def _state_row(
    account: Account, provider: str, state: QuotaState, name: str, pending: dict[str, PendingRequest]
) -> Row:
    return quota_row(
        AREA, state, pending.get(name.lower()), lambda desired: _request_increase(account, provider, name, desired)
    )


def _open_requests(account: Account, provider: str) -> tuple[dict[str, PendingRequest], list[Row]]:
    """Return the pending requests by quota in lower case, or a result with the reason why they are unknown."""
    pending: dict[str, PendingRequest] = {}
    try:
        for request in account.quota.quota_request_status.list(account.quota_scope(provider)):
            properties = request.properties
            if properties and properties.provisioning_state in OPEN_STATES:
                for part in properties.value or ():
                    limit = part.limit.value if isinstance(part.limit, models.LimitObject) else None
                    name = (part.name.value if part.name else None) or ""
                    pending[name.lower()] = PendingRequest(limit, request.name or "no id")
    except HttpResponseError as error:
        if error.status_code == 401:  # noqa: PLR2004  no request of the account can succeed
            raise
        refused = explain(error)
        question = f"open requests of {provider}"
        return {}, [Row(AREA, question, Status.UNANSWERED, refused.result, remedy=refused.remedy)]
    return pending, []


def _request_increase(account: Account, provider: str, name: str, desired: int) -> str:
    request = models.CurrentQuotaLimitBase(
        properties=models.QuotaProperties(limit=models.LimitObject(value=desired), name=models.ResourceName(value=name))
    )
    try:
        account.quota.quota.begin_create_or_update(name, account.quota_scope(provider), request, polling=False)
    except AzureError as error:
        refusal = explain(error)
        raise IncreaseError(f"{refusal.result}; {refusal.remedy}") from None
    return "filed the request"


def _count_own_vcpus(account: Account) -> Counter[str] | None:
    """Count the vCPUs of the deployment's own nodes by quota in lower case; `None` before the first deploy."""
    group = azure_names.node_resource_group_name(account.deployment)
    total: Counter[str] = Counter()
    try:
        for scale_set in account.compute.virtual_machine_scale_sets.list(group):
            size = catalog.vm_sizes().get((scale_set.sku.name if scale_set.sku else None) or "")
            if size is None or scale_set.sku is None:
                continue
            profile = scale_set.properties.virtual_machine_profile if scale_set.properties else None
            vcpus = (scale_set.sku.capacity or 0) * size.vcpus
            spot = profile is not None and profile.priority == "Spot"
            for quota in (SPOT_QUOTA,) if spot else (size.quota_family, REGIONAL_QUOTA):
                total[quota.lower()] += vcpus
    except ResourceNotFoundError:
        return None
    return total
