"""Checks for compute and network quotas: limits, usage by others, requirements, and pending requests."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.mgmt.quota import models

from voice_blueprint import catalog
from voice_blueprint.azure import names as azure_names
from voice_blueprint.checks.azure.capacity import SPOT_QUOTA_NAME, iter_quota_usages
from voice_blueprint.file.model.azure import Azure
from voice_ops.preflight.azure.account import REPORT_AREA, Account
from voice_ops.preflight.azure.refusals import explain_error
from voice_ops.preflight.quota import PendingRequest, QuotaState, compare_quota
from voice_ops.preflight.report import CheckResult, CheckStatus, QuotaIncreaseError

COMPUTE_PROVIDER, NETWORK_PROVIDER = "Microsoft.Compute", "Microsoft.Network"
REGIONAL_QUOTA_NAME = "cores"
"""Quota for all vCPUs in a location except those of spot nodes."""
OPEN_REQUEST_STATES = {"Accepted", "InProgress"}
RESOURCE_TYPE_BY_NETWORK_QUOTA = {
    "VirtualNetworks": "network:VirtualNetwork",
    "StandardSkuPublicIpAddresses": "network:PublicIPAddress",
}
"""Resource type that counts against each Microsoft.Network quota, by the name of the quota."""


def calculate_required_vcpus(azure: Azure) -> dict[str, tuple[int, int]]:
    """Return the vCPUs at the minimum and at the maximum, by quota.

    Each family, the location, and spot nodes have a quota. The maximum includes the surge nodes of an upgrade.
    """
    needs: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for part in iter_quota_usages(azure):
        for quota in (SPOT_QUOTA_NAME,) if part.quota == SPOT_QUOTA_NAME else (part.quota, REGIONAL_QUOTA_NAME):
            low, high = needs[quota]
            needs[quota] = (low + part.min_vcpus, high + part.max_vcpus)
    return dict(needs)


def compare_vcpu_quotas(account: Account) -> Iterator[CheckResult]:
    """Compare the vCPU quotas with the requirements of the deployment. The case of family names is ignored."""
    usage = {(row.name.value or "").lower(): row for row in account.compute_client.usage.list(account.location)}
    own_vcpus = _count_own_vcpus(account) or Counter()
    pending, refusal = _list_open_requests(account, COMPUTE_PROVIDER)
    yield from refusal
    for name, (low, high) in calculate_required_vcpus(account.deployment.azure).items():
        row = usage.get(name.lower())
        if row is None:
            yield CheckResult(
                REPORT_AREA,
                f"quota: {name}",
                CheckStatus.BLOCKING,
                f"{account.location} has no such quota for this subscription",
                f"{low} at the minimum, {high} at the maximum",
                "the size is not available to the subscription there: contact Azure support, or use another location",
            )
            continue
        others = max(0, row.current_value - own_vcpus[name.lower()])
        state = QuotaState(name, "vCPU", row.limit, others, low, high)
        yield _compare_quota_state(account, COMPUTE_PROVIDER, state, row.name.value or name, pending)


def compare_network_quotas(account: Account) -> Iterator[CheckResult]:
    """Compare the quotas for virtual networks and public addresses with the resources in the cluster program."""
    scope = account.build_quota_scope(NETWORK_PROVIDER)
    pending, refusal = _list_open_requests(account, NETWORK_PROVIDER)
    yield from refusal
    deployed = _count_own_vcpus(account) is not None
    for name, kind in RESOURCE_TYPE_BY_NETWORK_QUOTA.items():
        need = account.resources[kind]
        limit = account.quota_client.quota.get(name, scope).properties
        used = account.quota_client.usages.get(name, scope).properties
        if limit is None or used is None or not isinstance(limit.limit, models.LimitObject) or used.usages is None:
            yield CheckResult(
                REPORT_AREA,
                f"quota: {name}",
                CheckStatus.UNKNOWN,
                "Azure returns no limit",
                f"{need}",
                "see the portal",
            )
            continue
        others = max(0, used.usages.value - (need if deployed else 0))
        state = QuotaState(name, "in the location", limit.limit.value, others, need, need)
        yield _compare_quota_state(account, NETWORK_PROVIDER, state, name, pending)


def _compare_quota_state(
    account: Account, provider: str, state: QuotaState, name: str, pending: dict[str, PendingRequest]
) -> CheckResult:
    return compare_quota(
        REPORT_AREA,
        state,
        pending.get(name.lower()),
        lambda desired: _request_increase(account, provider, name, desired),
    )


def _list_open_requests(account: Account, provider: str) -> tuple[dict[str, PendingRequest], list[CheckResult]]:
    """Return the pending requests by quota in lower case, or a result with the reason why they are unknown."""
    pending: dict[str, PendingRequest] = {}
    try:
        for request in account.quota_client.quota_request_status.list(account.build_quota_scope(provider)):
            properties = request.properties
            if properties and properties.provisioning_state in OPEN_REQUEST_STATES:
                for part in properties.value or ():
                    limit = part.limit.value if isinstance(part.limit, models.LimitObject) else None
                    name = (part.name.value if part.name else None) or ""
                    pending[name.lower()] = PendingRequest(limit, request.name or "no id")
    except HttpResponseError as error:
        if error.status_code == 401:  # noqa: PLR2004  no request of the account can succeed
            raise
        refused = explain_error(error)
        question = f"open requests of {provider}"
        return {}, [CheckResult(REPORT_AREA, question, CheckStatus.UNKNOWN, refused.result, remedy=refused.remedy)]
    return pending, []


def _request_increase(account: Account, provider: str, name: str, desired: int) -> str:
    request = models.CurrentQuotaLimitBase(
        properties=models.QuotaProperties(limit=models.LimitObject(value=desired), name=models.ResourceName(value=name))
    )
    try:
        account.quota_client.quota.begin_create_or_update(
            name, account.build_quota_scope(provider), request, polling=False
        )
    except AzureError as error:
        refusal = explain_error(error)
        raise QuotaIncreaseError(f"{refusal.result}; {refusal.remedy}") from None
    return "filed the request"


def _count_own_vcpus(account: Account) -> Counter[str] | None:
    """Count the vCPUs of the deployment's own nodes by quota in lower case; `None` before the first deploy."""
    group = azure_names.build_node_resource_group_name(account.deployment)
    total: Counter[str] = Counter()
    try:
        for scale_set in account.compute_client.virtual_machine_scale_sets.list(group):
            size = catalog.vm_sizes().get((scale_set.sku.name if scale_set.sku else None) or "")
            if size is None or scale_set.sku is None:
                continue
            profile = scale_set.properties.virtual_machine_profile if scale_set.properties else None
            vcpus = (scale_set.sku.capacity or 0) * size.vcpus
            spot = profile is not None and profile.priority == "Spot"
            for quota in (SPOT_QUOTA_NAME,) if spot else (size.quota_family, REGIONAL_QUOTA_NAME):
                total[quota.lower()] += vcpus
    except ResourceNotFoundError:
        return None
    return total
