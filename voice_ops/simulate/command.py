"""`voice simulate`: simulate whether a deployment scales in time."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.day import resolve_design_load
from voice_blueprint.file.model.aws import Rollout
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import add_placeholder_digests
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import create_exit, err, out, print_json
from voice_ops.progress import print_heartbeats
from voice_ops.simulate.account import map_families_to_quota_codes
from voice_ops.simulate.calls import REDIAL_FRACTION
from voice_ops.simulate.capacity import FleetPlan, calculate_default_peak, calculate_max_store_calls, create_fleet_plans
from voice_ops.simulate.cells import (
    CELL_LOSS_TRACE_NAMES,
    CELL_TICK_S,
    SIMULATED_CELL_COUNT,
    TotalResults,
    combine_cells,
    count_lost_cells,
    create_cell_loss_trace,
    simulate_cells,
)
from voice_ops.simulate.metrics import validate_rule_metrics
from voice_ops.simulate.plots import write_calls_plot
from voice_ops.simulate.policies import BASELINE_POLICIES, Policy, create_configured_policy
from voice_ops.simulate.report import (
    create_fleet_table,
    create_policy_table,
    create_sweep_table,
    format_alerts,
    serialize_results,
    summarize_result,
)
from voice_ops.simulate.run import PolicyResult, Simulation, SimulationSettings
from voice_ops.simulate.shortfall import find_shortfall
from voice_ops.simulate.traces import (
    BUILT_IN_TRACES,
    DAY_TRACE_NAME,
    LoadTrace,
    TraceError,
    create_design_day_trace,
    read_trace,
)
from voice_ops.simulate.tune import create_tuning_table, search_plans

SWEPT_UTILIZATIONS = (0.4, 0.7, 1.0, 1.5)
"""Utilizations to simulate for an ASR host with all slots used.

Below 1.0, the slots limit the host. Above 1.0, its compute does.
"""

T = TypeVar("T")

Option = typer.Option


def simulate(  # noqa: PLR0917  Typer passes parameters by name
    file: DeploymentFileArgument,
    load: Annotated[
        str,
        Option(
            metavar="TRACE",
            help=f"Trace: {', '.join(BUILT_IN_TRACES)}, or {DAY_TRACE_NAME} (the file's `load`); with cells also "
            f"{', '.join(CELL_LOSS_TRACE_NAMES)}; or a CSV file with the columns second,calls.",
        ),
    ] = "spike",
    peak: Annotated[
        float | None,
        Option(help="Calls at the peak of a built-in trace. Default: 80 % of the maximum capacity.", min=1),
    ] = None,
    call_seconds: Annotated[
        float | None,
        Option(help="Mean duration of a call, s, instead of the file's; durations are exponential.", min=1),
    ] = None,
    redial: Annotated[
        float, Option(help="Fraction of rejected or dropped callers who redial.", min=0, max=1)
    ] = REDIAL_FRACTION,
    seed: Annotated[int, Option(help="Random seed.", min=0)] = 1,
    boot: Annotated[
        list[str] | None,
        Option(metavar="FLEET=COLD/WARM", help="Boot time, cold and from the warm pool, s (metric ColdStart)."),
    ] = None,
    quota: Annotated[
        list[str] | None,
        Option(
            metavar="FAMILY=VCPU", help=f"vCPU quota of the account, for {', '.join(map_families_to_quota_codes())}."
        ),
    ] = None,
    spot_interruptions: Annotated[float, Option(help="Interruptions per spot host per day.", min=0)] = 0.0,
    rollout: Annotated[
        list[str] | None, Option(metavar="FLEET", help="Fleet whose hosts a rollout replaces during the simulation.")
    ] = None,
    silent: Annotated[list[str] | None, Option(metavar="METRIC", help="Metric to simulate as missing.")] = None,
    compare_autoscalers: Annotated[
        bool,
        Option(
            "--compare-autoscalers",
            help="Compare with other autoscalers: fixed steps, CPU target tracking, and KEDA on the queue.",
        ),
    ] = False,
    tune: Annotated[
        float | None,
        Option(
            metavar="PERCENT",
            help="Find the cheapest configuration that rejects at most PERCENT of callers.",
            min=0,
            max=100,
        ),
    ] = None,
    output: Annotated[Path | None, Option(metavar="DIR", help="Folder for calls.png.")] = None,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate callers, scaling and failures with the scaling rules of a file.

    Rules and alerts are evaluated as CloudWatch, EC2 Auto Scaling (warm pools included), ECS and KEDA evaluate them.
    Calls per host are those of `voice plan`. Boot times are from the catalogue, and printed with their source. For
    a file with `cells`, the tables show one cell; a sample of cells is simulated to represent all.

    Example: voice simulate deployments/production-us-east-1.yaml --load spike --output build/spike
    """
    deployment = load_region_deployment(file, region)
    aws = deployment.aws_section
    try:
        _validate_finite_options(
            {"--peak": peak, "--call-seconds": call_seconds, "--spot-interruptions": spot_interruptions}
        )
        plans = _create_plans(deployment, boot or [])
        trace = _select_trace(deployment, load, peak, plans)
        settings = SimulationSettings(
            zones=aws.availability_zones if aws else deployment.azure.availability_zones,
            mean_call_s=call_seconds or 60 * resolve_design_load(deployment).minutes_each,
            cross_zone=aws is None or aws.edge.cross_zone,
            seed=seed,
            quotas=_map_quotas_to_codes(_parse_pairs("--quota", quota or [], r"\d+", int)),
            interruptions_per_day=spot_interruptions,
            rolled_fleets=_validate_names("--rollout", rollout or [], "fleet", [plan.name for plan in plans]),
            silent_metrics=_validate_names("--silent", silent or [], "metric of a rule", _list_rule_metrics(plans)),
            rollout=aws.rollout if aws else Rollout(),
            store_call_limit=calculate_max_store_calls(deployment),
            redial_share=redial,
            tick_s=CELL_TICK_S if _has_several_cells(deployment) else None,
        )
    except (TraceError, ValueError) as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    if tune is not None:
        _tune_plans(deployment, plans, trace, settings, tune / 100, as_json=as_json)
        return
    peer_results = _run_policies(BASELINE_POLICIES, plans, trace, settings) if compare_autoscalers else []
    results = [
        *peer_results,
        *_run_policies((create_configured_policy(plans),), plans, trace, settings, add_placeholder_digests(deployment)),
    ]
    cells = _simulate_cells(deployment, plans, trace, settings, results[-1])
    # The fleets' speed determines the result of a spike. The utilization of a full host is not measured, so several
    # values are shown.
    swept = {
        busy: _simulate_utilization(plans, trace, settings, busy, results[-1])
        for busy in (SWEPT_UTILIZATIONS if load == "spike" else ())
    }
    if as_json:
        in_cells = {"cells": vars(cells)} if cells else {}
        print_json(serialize_results(trace, results, swept, seed=seed) | in_cells, deployment.name)
    else:
        title = f"{deployment.name}, {trace.name}: {trace.calls[0]:,.0f} calls, at most {trace.peak:,.0f}"
        out.print(create_policy_table(title, [summarize_result(result) for result in results]))
        if swept:
            out.print(create_sweep_table(swept))
        found = find_shortfall(results[-1])
        if found:
            out.print(f"{results[-1].policy}: {found}", soft_wrap=True)
        out.print(format_alerts(results[-1]), soft_wrap=True)
        if cells:
            out.print(str(cells), soft_wrap=True)
        out.print()
        out.print(create_fleet_table(plans))
    if output:
        try:
            figure = write_calls_plot(
                results, f"{deployment.name}: {trace.name}, at most {trace.peak:,.0f} calls", output
            )
        except OSError as error:
            raise create_exit(f"{output}: {error.strerror}", INVALID_INPUT) from None
        err.print(f"wrote {figure!s}", soft_wrap=True)


def _has_several_cells(deployment: Deployment) -> bool:
    return deployment.whole_deployment is not None and deployment.whole_deployment.cell_count > 1


def _simulate_cells(
    deployment: Deployment,
    plans: tuple[FleetPlan, ...],
    trace: LoadTrace,
    settings: SimulationSettings,
    first_result: PolicyResult,
) -> TotalResults | None:
    """Return the results of all cells, or ``None`` if the file does not have several cells.

    ``first`` is the result of the first cell, which has already been simulated.
    """
    if deployment.whole_deployment is None or not _has_several_cells(deployment):
        return None
    others = replace(settings, seed=settings.seed + 1)
    with print_heartbeats(err, "simulate further cells"):
        results = [
            first_result,
            *simulate_cells(plans, create_configured_policy(plans), trace, others, SIMULATED_CELL_COUNT - 1),
        ]
    lost = count_lost_cells(deployment, trace.name) if trace.name in CELL_LOSS_TRACE_NAMES else 0
    return combine_cells(results, deployment.whole_deployment.cell_count, trace, lost)


def _tune_plans(
    deployment: Deployment,
    plans: tuple[FleetPlan, ...],
    trace: LoadTrace,
    settings: SimulationSettings,
    max_refused_share: float,
    *,
    as_json: bool,
) -> None:
    with print_heartbeats(err, f"search for at most {max_refused_share:.1%} refused"):
        path = search_plans(plans, trace, settings, max_refused_share)
    if as_json:
        steps = [{"change": each.change, "refused": each.refused, "usd_per_month": each.usd_per_month} for each in path]
        print_json(
            {"bound": max_refused_share, "met": path[-1].refused <= max_refused_share, "path": steps}, deployment.name
        )
    else:
        out.print(create_tuning_table(path, max_refused_share))
    if path[-1].refused > max_refused_share:
        raise create_exit(
            f"at least {path[-1].refused:.2%} of callers are refused: raise the maximums or the limit", FAILED
        )


def _create_plans(deployment: Deployment, boot: list[str]) -> tuple[FleetPlan, ...]:
    measured = _parse_pairs(
        "--boot", boot, r"\d+/\d+", lambda text: (float(text.split("/")[0]), float(text.split("/")[1]))
    )
    plans = create_fleet_plans(deployment, measured)
    for plan in plans:
        validate_rule_metrics(plan)
    return plans


def _validate_finite_options(options: dict[str, float | None]) -> None:
    for option, value in options.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{option} {value} is not a finite number")


def _validate_names(option: str, values: list[str], kind: str, valid_names: list[str]) -> frozenset[str]:
    for name in values:
        if name not in valid_names:
            raise ValueError(f"{option} {name}: unknown {kind}; specify one of {', '.join(valid_names)}")
    return frozenset(values)


def _list_rule_metrics(plans: tuple[FleetPlan, ...]) -> list[str]:
    return list(dict.fromkeys(rule.metric for plan in plans for rule in plan.rules))


def _select_trace(deployment: Deployment, load: str, peak: float | None, plans: tuple[FleetPlan, ...]) -> LoadTrace:
    if load == "spot-wave" and not any(plan.is_spot for plan in plans):
        raise ValueError("--load spot-wave: the file has no spot fleet")
    if load in CELL_LOSS_TRACE_NAMES:
        lost = count_lost_cells(deployment, load)
        assert deployment.whole_deployment is not None  # noqa: S101  checked by the caller, since cells are lost
        return create_cell_loss_trace(
            peak or calculate_peak_calls(resolve_design_load(deployment)),
            deployment.whole_deployment.cell_count,
            lost,
            load,
        )
    if load in BUILT_IN_TRACES:
        return BUILT_IN_TRACES[load](peak or calculate_default_peak(plans, calculate_max_store_calls(deployment)))
    if load == DAY_TRACE_NAME:
        if peak:
            raise ValueError(
                f"--peak only applies to built-in traces; --load {DAY_TRACE_NAME} uses the peak of `load` in the file"
            )
        return create_design_day_trace(deployment)
    if not Path(load).suffix:
        raise ValueError(
            f"unknown trace {load}: specify {', '.join((*BUILT_IN_TRACES, *CELL_LOSS_TRACE_NAMES))}, "
            f"{DAY_TRACE_NAME} or a CSV "
            f"file"
        )
    if peak:
        raise ValueError("--peak only applies to built-in traces; a CSV file contains the number of calls")
    return read_trace(Path(load))


def _parse_pairs(option: str, values: Iterable[str], pattern: str, convert: Callable[[str], T]) -> dict[str, T]:
    pairs = {}
    for text in values:
        name, _, value = text.partition("=")
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{option} {text} does not have the format NAME=VALUE; see `voice simulate --help`")
        pairs[name] = convert(value)
    return pairs


def _map_quotas_to_codes(quotas: dict[str, int]) -> dict[str, int]:
    codes = map_families_to_quota_codes()
    for family in quotas.keys() - codes:
        raise ValueError(f"--quota {family}: unknown family; specify one of {', '.join(codes)}")
    return {codes[family]: vcpus for family, vcpus in quotas.items()}


def _simulate_utilization(
    plans: tuple[FleetPlan, ...], trace: LoadTrace, settings: SimulationSettings, busy: float, baseline: PolicyResult
) -> PolicyResult:
    if busy == settings.busy_at_full:
        return baseline
    (result,) = _run_policies((create_configured_policy(plans),), plans, trace, replace(settings, busy_at_full=busy))
    return result


def _run_policies(
    compared: Iterable[Policy],
    plans: tuple[FleetPlan, ...],
    trace: LoadTrace,
    settings: SimulationSettings,
    alert_deployment: Deployment | None = None,
) -> list[PolicyResult]:
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        for policy in compared:
            task = progress.add_task(policy.name, total=trace.duration_s)

            def update_progress(second: float, task: TaskID = task) -> None:
                progress.update(task, completed=second)

            with print_heartbeats(err, f"simulate {policy.name}"):
                results.append(Simulation(plans, policy, trace, settings, update_progress, alert_deployment).run())
    return results
