"""Plans cells for `voice plan`, if the load exceeds the capacity of one deployment."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.table import Table

from voice_blueprint import catalog
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.limits import iter_limit_usages
from voice_ops.cost.prices import HOURS_PER_MONTH
from voice_ops.needs import calculate_required_fargate_vcpus, calculate_required_vcpus
from voice_ops.output import create_table
from voice_ops.simulate.capacity import create_fleet_plans


@dataclass(frozen=True)
class QuotaUsage:
    """Quota usage of all cells in one account and region, at their maximum size.

    Attributes:
        default: Default of a new account; ``None`` if it differs between accounts.
    """

    name: str
    code: str
    needed: int
    default: int | None


@dataclass(frozen=True)
class CellPlan:
    """Number and size of the cells for a load.

    Attributes:
        peak: Concurrent calls of the whole load at the peak.
        cells: Number of cells; one cell fewer is sufficient for the peak.
        cell_peak: Concurrent calls of a cell while another one is unavailable.
        regions: Regions of the cells. Each has the same number of cells.
        accounts: Number of AWS accounts or Azure subscriptions.
        account_cells: Maximum number of cells of one account in one region.
        usd_per_month: List price of the hosts, tasks and replicas of all cells, at the minimum and maximum size.
        not_priced: Fleets that ``usd_per_month`` excludes, since they have no list price in the region.
    """

    peak: int
    cells: int
    cell_peak: int
    regions: tuple[str, ...]
    accounts: int
    account_cells: int
    usd_per_month: tuple[float, float]
    not_priced: tuple[str, ...]
    quotas: tuple[QuotaUsage, ...]


def plan_cells(deployment: Deployment) -> CellPlan | None:
    """Return the cells of a deployment, or ``None`` if one deployment is sufficient for the load.

    Raises:
        ValueError: The file has no section for calls.
    """
    if not deployment.cells or not deployment.load or deployment.cell_count == 1:
        return None
    cell, count = deployment.cell, deployment.cell_count
    assert cell.load is not None  # noqa: S101  a cell has a part of the load
    regions = deployment.file_regions if deployment.aws_section else (deployment.azure.location,)
    account_cells = math.ceil(min(deployment.cells.per_account, count) / len(regions))
    plans = create_fleet_plans(cell.split_by_region()[0], {})
    hourly = [
        sum((plan.usd_per_hour or 0.0) * sum(getattr(group, bound) for group in plan.groups) for plan in plans)
        for bound in ("min_hosts", "max_hosts")
    ]
    low, high = (each * HOURS_PER_MONTH * count for each in hourly)
    return CellPlan(
        peak=calculate_peak_calls(deployment.load),
        cells=count,
        cell_peak=calculate_peak_calls(cell.load),
        regions=regions,
        accounts=math.ceil(count / deployment.cells.per_account),
        account_cells=account_cells,
        usd_per_month=(low, high),
        not_priced=tuple(plan.name for plan in plans if plan.usd_per_hour is None),
        quotas=tuple(_calculate_quota_usage(cell, account_cells)),
    )


def _calculate_quota_usage(cell: Deployment, cells: int) -> Iterator[QuotaUsage]:
    if cell.aws_section:
        codes = {quota.family: quota for quota in catalog.quotas().values()}
        for (family, spot), (_, high) in calculate_required_vcpus(cell).items():
            quota = codes[family]
            yield QuotaUsage(f"{quota.name}{', as spot' * spot}", quota.code, high * cells, None)
        yield QuotaUsage("vCPU of Fargate", "L-3032A538", calculate_required_fargate_vcpus(cell)[1] * cells, None)
    largest_needs = {need.limit.id: need for need in sorted(iter_limit_usages(cell), key=lambda need: need.units.max)}
    for need in largest_needs.values():
        limit = need.limit
        times = cells if limit.of_account else 1
        yield QuotaUsage(limit.name, limit.quota or "fixed", need.units.max * times, limit.default)


def create_cell_tables(plan: CellPlan) -> Iterator[Table]:
    """Yield the tables for the cells and for an account's quotas."""
    table = create_table(f"{plan.peak:,} concurrent calls in cells", [""], ["all"], "how")
    low, high = plan.usd_per_month
    priced = f", without {', '.join(plan.not_priced)}" if plan.not_priced else ""
    rows = (
        ("cells", f"{plan.cells:,}", f"{plan.cells - 1:,} support the peak, and one may be lost"),
        (
            "calls per cell",
            f"{plan.cell_peak:,}",
            "at the peak, while another cell is lost; the tables below are of a cell",
        ),
        ("regions", f"{len(plan.regions)}", ", ".join(plan.regions)),
        ("accounts", f"{plan.accounts:,}", f"at most {plan.account_cells} cells per account and region"),
        ("USD a month", f"{low:,.0f}-{high:,.0f}", f"list price of hosts, tasks and replicas alone{priced}"),
    )
    for row in rows:
        table.add_row(*row)
    yield table
    quotas = create_table(
        f"quotas per account and region, for {plan.account_cells} cells",
        ["quota", "code"],
        ["at the maximum", "default"],
        caption="limits of one deployment count once; `voice preflight` compares a cell with the quotas of the account",
    )
    for quota in plan.quotas:
        quotas.add_row(
            quota.name, quota.code, f"{quota.needed:,}", "-" if quota.default is None else f"{quota.default:,}"
        )
    yield quotas


def serialize_cells(plan: CellPlan | None) -> dict[str, object] | None:
    """Return the cells for ``--json``."""
    return asdict(plan) if plan else None
