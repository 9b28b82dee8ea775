"""Checks on capacity: each tier must be sufficient for the load, and no tier may be much larger than the others."""

from collections.abc import Iterator
from itertools import groupby

from voice_blueprint import catalog
from voice_blueprint.capacity.bounds import (
    MAX_STORE_UTILIZATION,
    SOCKETS_PER_CALL,
    calculate_gateway_task_call_bounds,
    calculate_vad_host_call_bounds,
    find_limiting_bound,
)
from voice_blueprint.capacity.load import calculate_peak_calls, calculate_tier_load, recommend_sizes
from voice_blueprint.capacity.tiers import (
    TierCapacity,
    build_aws_tier_capacities,
    calculate_supported_peak_calls,
    sum_calls_by_tier,
)
from voice_blueprint.checks.base import Severity, Violation, deployment_check, format_location
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment

MAX_CAPACITY_RATIO = 4
"""Maximum ratio of a tier's capacity to the smallest tier's capacity. Capacity above this ratio cannot be used."""
HOURS_PER_MONTH = 730


@deployment_check(
    "load-fits-tiers",
    "Each tier supports the peak of the load at its maximum.",
    source="voice_blueprint/capacity: bounds with their sources (`voice plan` shows them)",
)
def check_load_fits_tiers(deployment: Deployment) -> Iterator[Violation]:
    load = deployment.load
    if load is None or deployment.aws_section is None:
        return
    ranges = sum_calls_by_tier(build_aws_tier_capacities(deployment.aws))
    for tier, group in groupby(recommend_sizes(deployment.aws, load), key=lambda pair: pair[0].tier):
        tier_load = calculate_tier_load(tier, load, deployment.aws.agents)
        if (max_calls := calculate_supported_peak_calls(tier, ranges[tier][1])) < (
            peak := calculate_peak_calls(tier_load)
        ):
            members = list(group)
            limit_note = f", {MAX_STORE_UTILIZATION:.0%} of its memory" if tier is Tier.STATE else ""
            yield Violation(
                members[0][0].location,
                f"tier {tier} supports at most {max_calls:,} calls{limit_note}, but the load's peak is {peak:,} "
                f"({tier_load.calls:,} x {load.peak_factor:g})",
                "set " + ", ".join(f"{format_location(each.location)} to {text}" for each, text in members),
            )


@deployment_check(
    "tiers-balanced",
    f"No tier has more than {MAX_CAPACITY_RATIO} times the capacity of the smallest one, nor cores that its limiting "
    "factor never uses.",
    source="voice_blueprint/capacity; list prices of the catalogue",
    level=Severity.WARNING,
)
def check_tiers_balanced(deployment: Deployment) -> Iterator[Violation]:
    results = [each for each in build_aws_tier_capacities(deployment.aws) if each.tier is not Tier.STATE]
    ranges = sum_calls_by_tier(results)
    smallest_tier, (_, max_calls) = min(ranges.items(), key=lambda item: item[1][1])
    load = deployment.load
    required = max(max_calls, calculate_peak_calls(load)) if load else max_calls
    for each in results:
        # A second host in each zone is not excess capacity, since one may fail.
        desired = max(each.calculate_required_units(required), 2 * each.parts) if each.calls else each.units.max
        if (
            each.tier is not smallest_tier
            and each.max_calls > MAX_CAPACITY_RATIO * required
            and desired < each.units.max
        ):
            comparison = (
                f"{each.max_calls / required:.0f} times the capacity of tier {smallest_tier} ({max_calls:,})"
                if required
                else f"tier {smallest_tier} supports none"
            )
            yield Violation(
                each.location,
                f"{each.name} supports {each.max_calls:,} calls, "
                f"{comparison}{_describe_savings(deployment, each, each.units.max - desired)}",
                f"set max to {desired // each.parts}, or raise the maximum of tier {smallest_tier}",
            )
    yield from _check_vad_host_size(deployment)


def _check_vad_host_size(deployment: Deployment) -> Iterator[Violation]:
    """Yield a violation if a smaller instance type of the same family gives a VAD host the same capacity."""
    aws = deployment.aws
    kind, calls = (
        catalog.instance_types()[aws.vad.instance_type],
        find_limiting_bound(calculate_vad_host_call_bounds(aws.vad)).calls,
    )
    price = kind.usd_per_hour.get(aws.region)
    family, queues = kind.name.partition(".")[0], aws.vad.data_path.rx_queues
    pages_gib = aws.vad.huge_pages.count * aws.vad.huge_pages.size_mib / 1024
    sufficient = [
        row
        for row in catalog.instance_types().values()
        if row.name.partition(".")[0] == family
        and row.network_queues >= min(kind.network_queues, 2 * queues)
        and row.vcpus >= queues + 2
        and find_limiting_bound(
            calculate_vad_host_call_bounds(aws.vad.model_copy(update={"instance_type": row.name}))
        ).calls
        >= calls
    ]
    smallest = min(sufficient, key=lambda row: row.vcpus, default=kind)
    other = smallest.usd_per_hour.get(aws.region)
    if kind.vcpus < MAX_CAPACITY_RATIO * smallest.vcpus or not price or not other:
        return
    savings_usd = (price - other) * HOURS_PER_MONTH
    yield Violation(
        ("aws", "vad", "instance_type"),
        f"the data plane uses {queues} of {kind.vcpus} vCPU on {kind.name}: {smallest.name} supports the same "
        f"{calls:,} calls and costs {savings_usd:,.0f} USD less per host and month",
        f"use {smallest.name}, with huge_pages for its {smallest.memory_gib:g} GiB (now {pages_gib:g} GiB)",
    )


def _describe_savings(deployment: Deployment, tier_capacity: TierCapacity, hosts: int) -> str:
    aws = deployment.aws
    names = {"vad": aws.vad.instance_type} | {fleet.name: fleet.instance_type for fleet in aws.asr}
    kind = catalog.instance_types().get(names.get(tier_capacity.name, ""))
    price = kind.usd_per_hour.get(aws.region) if kind else None
    return f": up to {price * hosts * HOURS_PER_MONTH:,.0f} USD a month" if price else ""


@deployment_check(
    "sockets-fit-task",
    "A gateway task has the CPU and memory for its maximum number of sockets.",
    source="voice_blueprint/capacity: CPU time of a call, and memory of a socket",
)
def check_sockets_fit_task(deployment: Deployment) -> Iterator[Violation]:
    gateway = deployment.aws.edge.gateway
    bound = find_limiting_bound(
        tuple(each for each in calculate_gateway_task_call_bounds(gateway) if each.name != "sockets")
    )
    max_sockets = bound.calls * SOCKETS_PER_CALL
    if gateway.sockets_per_task is not None and gateway.sockets_per_task > max_sockets:
        yield Violation(
            ("aws", "edge", "gateway", "sockets_per_task"),
            f"sockets_per_task {gateway.sockets_per_task:,} exceeds the {max_sockets:,} sockets that the {bound.name} "
            f"of a task supports ({bound.source})",
            f"set sockets_per_task to at most {max_sockets}, or omit it",
        )


@deployment_check(
    "store-holds-calls",
    "If the file has no load, the state store supports the calls of the other tiers.",
    source="voice_blueprint/capacity: audio and transcript of a call",
)
def check_state_store_supports_calls(deployment: Deployment) -> Iterator[Violation]:
    ranges = {
        tier: max_calls for tier, (_, max_calls) in sum_calls_by_tier(build_aws_tier_capacities(deployment.aws)).items()
    }
    state = ranges.pop(Tier.STATE)
    if deployment.load is None and state < min(ranges.values()):
        yield Violation(
            ("aws", "state", "node_type"),
            f"{deployment.aws.state.node_type} supports {state:,} calls, but the other tiers support "
            f"{min(ranges.values()):,}",
            "use a larger node type, or set `load` to the expected load",
        )
