"""Generates the tables in docs/measurements.md: ``python -m tools.measurements_doc``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import voice_blueprint
from tools import doc_tables
from tools.doc_tables import format_table
from voice_blueprint.shipped import ROOT
from voice_ops.simulate.calls import REDIAL_FRACTION
from voice_ops.simulate.capacity import FleetPlan, calculate_default_peak, calculate_max_store_calls, create_fleet_plans
from voice_ops.simulate.command import SWEPT_UTILIZATIONS
from voice_ops.simulate.policies import BASELINE_POLICIES, Policy, create_configured_policy
from voice_ops.simulate.report import summarize_result
from voice_ops.simulate.run import PolicyResult, Simulation, SimulationSettings
from voice_ops.simulate.shortfall import find_shortfall
from voice_ops.simulate.traces import create_spike_trace

DOCUMENT_PATH = Path(__file__).parents[1] / "docs" / "measurements.md"
DEPLOYMENT_NAMES = ("production-us-east-1", "production-azure")
REDUCED_MIN_HOSTS = (("production-us-east-1", {"gateway": 17}), ("production-azure", {"voxtral-pairs on pairs": 2}))
"""Lower minimums for some fleets in a file, for an additional simulation of refused calls."""

_ROW_PATTERN = re.compile(r"^\| `(?P<file>[a-z0-9-]+)\.yaml` \| (?P<cells>[\d.]+ %(?: \| [\d.]+ %)+) \|", re.MULTILINE)


def render_document(text: str) -> str:
    """Return the text of the document with all tables regenerated."""
    return doc_tables.render_tables(text, TABLE_FORMATTER_BY_NAME)


def main() -> None:
    """Regenerate the tables of the document."""
    DOCUMENT_PATH.write_text(render_document(DOCUMENT_PATH.read_text(encoding="utf-8")), encoding="utf-8")


def parse_documented_percentages(text: str) -> dict[tuple[str, float], str]:
    """Return the documented share of refused calls, by file and utilization."""
    return {
        (row["file"], busy): cell
        for row in _ROW_PATTERN.finditer(text)
        for busy, cell in zip(SWEPT_UTILIZATIONS, row["cells"].split(" | "), strict=True)
    }


def format_refused_percentage(result: PolicyResult) -> str:
    """Return the share of calls that a simulation refused."""
    summary = summarize_result(result)
    return f"{summary.refused_calls / summary.offered_calls:.1%}".replace("%", " %")


@cache
def _simulate_spike(
    name: str, policy: Policy | None, busy: float, lower_minimums: tuple[tuple[str, int], ...] = ()
) -> PolicyResult:
    """Simulate the spike from `voice simulate FILE --load spike`.

    Args:
        policy: Scaling policy; ``None`` for the file's own rules.
        lower_minimums: Minimum number of hosts of some fleets, instead of the minimum in the file.
    """
    deployment = voice_blueprint.load(ROOT / "deployments" / f"{name}.yaml")
    minima = dict(lower_minimums)
    plans = tuple(_replace_min_hosts(plan, minima.get(plan.name)) for plan in create_fleet_plans(deployment, {}))
    aws, store = deployment.aws_section, calculate_max_store_calls(deployment)
    settings = SimulationSettings(
        zones=(aws or deployment.azure).availability_zones,
        mean_call_s=180,
        cross_zone=aws is None or aws.edge.cross_zone,
        seed=1,
        busy_at_full=busy,
        store_call_limit=store,
        redial_share=REDIAL_FRACTION,
    )
    return Simulation(
        plans,
        policy or create_configured_policy(plans),
        create_spike_trace(calculate_default_peak(plans, store)),
        settings,
    ).run()


def _replace_min_hosts(plan: FleetPlan, hosts: int | None) -> FleetPlan:
    """Return a fleet of one group with another minimum number of hosts. ``None`` leaves the minimum unchanged."""
    if hosts is None:
        return plan
    (group,) = plan.groups
    return replace(plan, groups=(replace(group, min_hosts=hosts),))


def _format_policies_table() -> str:
    rows = []
    for policy in (*BASELINE_POLICIES, None):
        result = _simulate_spike(DEPLOYMENT_NAMES[0], policy, 1.0)
        summary = summarize_result(result)
        answered = (summary.refused_conversations / summary.conversations) if summary.conversations else 0
        rows.append(
            (
                result.policy,
                format_refused_percentage(result),
                f"{answered:.1%}".replace("%", " %"),
                f"{summary.usd:,.0f}",
            )
        )
    return format_table(("Policy", "Refused calls", "Conversations without an agent", "USD of hosts"), rows)


def _format_file_policy_table() -> str:
    headings = [f"{busy:.0%} busy".replace("%", " %") for busy in SWEPT_UTILIZATIONS]
    rows = [
        (
            f"`{name}.yaml`",
            *(format_refused_percentage(_simulate_spike(name, None, busy)) for busy in SWEPT_UTILIZATIONS),
        )
        for name in DEPLOYMENT_NAMES
    ]
    return format_table(("Refused calls if a full host is", *headings), rows)


def _format_reserve_table() -> str:
    rows = []
    for name in DEPLOYMENT_NAMES:
        result = find_shortfall(_simulate_spike(name, None, 1.0))
        if result is None:
            rows.append((f"`{name}.yaml`", "-", "-", "-", "-"))
            continue
        first_host = "-" if result.help_s is None else f"after {result.help_s:.0f} s"
        reserve = ", ".join(f"{hosts} {fleet}" for fleet, hosts in result.reserve.items())
        usd = "-" if result.hold_usd_per_hour is None else f"{result.hold_usd_per_hour:,.0f}"
        rows.append((f"`{name}.yaml`", f"{result.places:,}", first_host, reserve, usd))
    headings = ("File", "Slots", "First new host", "Hosts that would refuse no call", "Additional USD per hour")
    return format_table(headings, rows)


def _format_lower_minimums_table() -> str:
    rows = [
        (f"`{name}.yaml` with {', '.join(f'{hosts} {fleet}' for fleet, hosts in minima.items())}",
         format_refused_percentage(_simulate_spike(name, None, 1.0, tuple(minima.items()))))
        for name, minima in REDUCED_MIN_HOSTS
    ]  # fmt: skip
    return format_table(("Fewer in service", "Refused calls"), rows)


TABLE_FORMATTER_BY_NAME: Mapping[str, Callable[[], str]] = {
    "scaling-policies": _format_policies_table,
    "scaling-own": _format_file_policy_table,
    "scaling-reserve": _format_reserve_table,
    "scaling-fewer": _format_lower_minimums_table,
}

if __name__ == "__main__":
    main()
