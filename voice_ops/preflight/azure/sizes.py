"""Checks for VM sizes: availability in the location and the zones, and comparison with the catalogue."""

from collections.abc import Iterator

from azure.mgmt.compute.models import ResourceSku, ResourceSkuRestrictionsReasonCode

from voice_blueprint import catalog
from voice_blueprint.catalog import VmSize
from voice_blueprint.file.model.azure import CPU_POOL_NAME, JumpHost, SpotNodes
from voice_ops.preflight.azure.account import REPORT_AREA, Account
from voice_ops.preflight.report import CheckResult, create_check_result


def check_vm_sizes(account: Account) -> Iterator[CheckResult]:
    """Report the zones in which the size of each pool is available, and differences from the catalogue."""
    desired = {size.name for _, size, _, _ in _list_pool_sizes(account)}
    skus = {
        sku.name: sku
        for sku in account.compute_client.resource_skus.list(filter=f"location eq '{account.location}'")
        if sku.resource_type == "virtualMachines" and sku.name in desired
    }
    for pool, size, zones, spot in _list_pool_sizes(account):
        yield _check_vm_size(account, pool, size, zones, skus.get(size.name), spot=spot)
    for name, sku in sorted((name, sku) for name, sku in skus.items() if name):
        yield _compare_vm_size(catalog.vm_sizes()[name], sku)


def _list_pool_sizes(account: Account) -> Iterator[tuple[str, VmSize, tuple[str, ...], bool]]:
    azure, sizes = account.deployment.azure, catalog.vm_sizes()
    yield "system", sizes[azure.system_pool.vm_size], azure.availability_zones, False
    if azure.cpu_pool:
        yield CPU_POOL_NAME, sizes[azure.cpu_pool.vm_size], azure.availability_zones, False
    for pool in azure.pools:
        zones = pool.availability_zones or azure.availability_zones
        yield pool.name, sizes[pool.vm_size], zones, isinstance(pool.purchase, SpotNodes)
    if isinstance(azure.access, JumpHost):
        yield "the jump host", sizes[azure.access.vm_size], (), False


def _check_vm_size(
    account: Account, pool: str, size: VmSize, zones: tuple[str, ...], sku: ResourceSku | None, *, spot: bool
) -> CheckResult:
    question, requirement = f"zones of {size.name} for {pool}", ", ".join(zones) or "any"
    if sku is None:
        remedy = f"use another size or location; the known locations are {', '.join(size.regions)}"
        return create_check_result(REPORT_AREA, question, f"not sold in {account.location}", requirement, blocks=remedy)
    available_zones = {zone for info in sku.location_info or () for zone in info.zones or ()}
    for restriction in sku.restrictions or ():
        if restriction.type == "Location":
            remedy = "request access to the size in the portal (Usage + quotas), or use another location"
            reason = ResourceSkuRestrictionsReasonCode(restriction.reason_code).value
            return create_check_result(REPORT_AREA, question, f"restricted: {reason}", requirement, blocks=remedy)
        if restriction.restriction_info:
            available_zones -= set(restriction.restriction_info.zones or ())
    if spot and _collect_capabilities(sku).get("LowPriorityCapable") == "False":
        return create_check_result(
            REPORT_AREA, question, "not sold as spot", requirement, blocks=f"set option of {pool} to on-demand"
        )
    missing = [zone for zone in zones if zone not in available_zones]
    result = ", ".join(sorted(available_zones)) or "no zone"
    if _collect_capabilities(sku).get("EncryptionAtHostSupported") == "False":
        return create_check_result(
            REPORT_AREA, question, "encryption at host is not supported", requirement, blocks="use another size"
        )
    remedy = (
        f"set availability_zones of {pool} to zones of {result}" if available_zones else "use another location or size"
    )
    return create_check_result(REPORT_AREA, question, result, requirement, blocks=remedy if missing else "")


def _compare_vm_size(size: VmSize, sku: ResourceSku) -> CheckResult:
    capabilities = _collect_capabilities(sku)
    facts = {
        "vCPU": (str(size.vcpus), capabilities.get("vCPUs")),
        "GPUs": (str(size.gpu_count), capabilities.get("GPUs", "0")),
        "RDMA": (str(size.rdma), capabilities.get("RdmaEnabled", "False")),
        "quota family": (size.quota_family.lower(), (sku.family or "").lower()),
    }
    wrong = [f"{name} {now}" for name, (expected, now) in facts.items() if expected != now]
    return create_check_result(
        REPORT_AREA,
        f"{size.name} in the catalogue",
        f"the API returns {', '.join(wrong)}" if wrong else "the API returns the same",
        ", ".join(f"{name} {expected}" for name, (expected, _) in facts.items()),
        warns=f"correct {size.name} in voice_blueprint/catalog/vm_sizes.yaml" if wrong else "",
    )


def _collect_capabilities(sku: ResourceSku) -> dict[str | None, str | None]:
    return {capability.name: capability.value for capability in sku.capabilities or ()}
