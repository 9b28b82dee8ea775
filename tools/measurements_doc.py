"""Generates the tables of docs/measurements.md: ``python -m tools.measurements_doc``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import voice_blueprint
from tools import doc_tables
from tools.doc_tables import markdown_table
from voice_blueprint.shipped import ROOT
from voice_ops.simulate.calls import REDIAL_SHARE
from voice_ops.simulate.capacity import FleetPlan, default_peak, fleet_plans, max_store_calls
from voice_ops.simulate.command import SWEPT_UTILIZATIONS
from voice_ops.simulate.policies import PEER_POLICIES, Policy, configured_policy
from voice_ops.simulate.report import summarize
from voice_ops.simulate.run import Result, Settings, Simulation
from voice_ops.simulate.shortfall import find_shortfall
from voice_ops.simulate.traces import spike_trace

DOCUMENT = Path(__file__).parents[1] / "docs" / "measurements.md"
FILES = ("production-us-east-1", "production-azure")
LOWER_MINIMUMS = (("production-us-east-1", {"gateway": 17}), ("production-azure", {"voxtral-pairs on pairs": 2}))
"""Lower minimums for some fleets of a file, with which the refused calls are simulated."""

_ROW = re.compile(r"^\| `(?P<file>[a-z0-9-]+)\.yaml` \| (?P<cells>[\d.]+ %(?: \| [\d.]+ %)+) \|", re.MULTILINE)


def render_document(text: str) -> str:
    """Return the text of the document with all tables regenerated."""
    return doc_tables.render_tables(text, TABLES)


def main() -> None:
    """Regenerate the tables of the document."""
    DOCUMENT.write_text(render_document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


def documented_shares(text: str) -> dict[tuple[str, float], str]:
    """Return the documented share of refused calls, by file and utilization."""
    return {
        (row["file"], busy): cell
        for row in _ROW.finditer(text)
        for busy, cell in zip(SWEPT_UTILIZATIONS, row["cells"].split(" | "), strict=True)
    }


def refused_share(result: Result) -> str:
    """Return the share of calls that a simulation refused."""
    summary = summarize(result)
    return f"{summary.refused_calls / summary.offered_calls:.1%}".replace("%", " %")


@cache
def _simulate_spike(
    name: str, policy: Policy | None, busy: float, lower_minimums: tuple[tuple[str, int], ...] = ()
) -> Result:
    """Simulate the spike of `voice simulate FILE --load spike`.

    Args:
        policy: Scaling policy; ``None`` for the file's own rules.
        lower_minimums: Minimum number of hosts of some fleets, instead of the minimum in the file.
    """
    deployment = voice_blueprint.load(ROOT / "deployments" / f"{name}.yaml")
    minima = dict(lower_minimums)
    plans = tuple(_with_minimum(plan, minima.get(plan.name)) for plan in fleet_plans(deployment, {}))
    aws, store = deployment.aws_section, max_store_calls(deployment)
    settings = Settings(
        zones=(aws or deployment.azure).availability_zones,
        mean_call_s=180,
        cross_zone=aws is None or aws.edge.cross_zone,
        seed=1,
        busy_at_full=busy,
        store_calls=store,
        redial_share=REDIAL_SHARE,
    )
    return Simulation(
        plans, policy or configured_policy(plans), spike_trace(default_peak(plans, store)), settings
    ).run()


def _with_minimum(plan: FleetPlan, hosts: int | None) -> FleetPlan:
    """Return a fleet of one group with another minimum number of hosts. ``None`` leaves the minimum unchanged."""
    if hosts is None:
        return plan
    (group,) = plan.groups
    return replace(plan, groups=(replace(group, min_hosts=hosts),))


def _policies_table() -> str:
    rows = []
    for policy in (*PEER_POLICIES, None):
        result = _simulate_spike(FILES[0], policy, 1.0)
        summary = summarize(result)
        answered = (summary.refused_conversations / summary.conversations) if summary.conversations else 0
        rows.append((result.policy, refused_share(result), f"{answered:.1%}".replace("%", " %"), f"{summary.usd:,.0f}"))
    return markdown_table(("Policy", "Refused calls", "Conversations without an agent", "USD of hosts"), rows)


def _file_policy_table() -> str:
    headings = [f"{busy:.0%} busy".replace("%", " %") for busy in SWEPT_UTILIZATIONS]
    rows = [
        (f"`{name}.yaml`", *(refused_share(_simulate_spike(name, None, busy)) for busy in SWEPT_UTILIZATIONS))
        for name in FILES
    ]
    return markdown_table(("Refused calls if a full host is", *headings), rows)


def _reserve_table() -> str:
    rows = []
    for name in FILES:
        result = find_shortfall(_simulate_spike(name, None, 1.0))
        if result is None:
            rows.append((f"`{name}.yaml`", "-", "-", "-", "-"))
            continue
        first_host = "-" if result.help_s is None else f"after {result.help_s:.0f} s"
        reserve = ", ".join(f"{hosts} {fleet}" for fleet, hosts in result.reserve.items())
        usd = "-" if result.hold_usd_per_hour is None else f"{result.hold_usd_per_hour:,.0f}"
        rows.append((f"`{name}.yaml`", f"{result.places:,}", first_host, reserve, usd))
    headings = ("File", "Slots", "First new host", "Hosts that would refuse no call", "Additional USD per hour")
    return markdown_table(headings, rows)


def _lower_minimums_table() -> str:
    rows = [
        (f"`{name}.yaml` with {', '.join(f'{hosts} {fleet}' for fleet, hosts in minima.items())}",
         refused_share(_simulate_spike(name, None, 1.0, tuple(minima.items()))))
        for name, minima in LOWER_MINIMUMS
    ]  # fmt: skip
    return markdown_table(("Fewer in service", "Refused calls"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "scaling-policies": _policies_table,
    "scaling-own": _file_policy_table,
    "scaling-reserve": _reserve_table,
    "scaling-fewer": _lower_minimums_table,
}

if __name__ == "__main__":
    main()
