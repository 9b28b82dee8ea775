"""`voice simulate`: will it scale in time."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from blueprint.file.model.aws import Rollout
from blueprint.file.model.deployment import Deployment
from ops.exits import REFUSED
from ops.findings import load_region
from ops.options import DeploymentFile, Json, Region
from ops.output import err, out, print_json, stop
from ops.progress import heartbeat
from ops.simulate.account import quota_codes
from ops.simulate.capacity import FleetPlan, fleet_plans, usual_peak
from ops.simulate.metrics import check_modelled
from ops.simulate.plots import draw
from ops.simulate.policies import PEERS, Policy, own
from ops.simulate.report import as_dict, fleet_table, policy_table, summarize, sweep_table
from ops.simulate.run import Result, Settings, Simulation
from ops.simulate.shortfall import shortfall
from ops.simulate.traces import BUILT_IN, Trace, TraceError, read

SWEEP = (0.4, 0.7, 1.0, 1.5)
"""How busy an ASR host is when its places are taken: slots bind first, both at once, or work does."""

T = TypeVar("T")

Option = typer.Option


def simulate(  # noqa: PLR0917  typer's options
    file: DeploymentFile,
    load: Annotated[
        str, Option(metavar="TRACE", help=f"{', '.join(BUILT_IN)}, or a CSV file with the header second,calls.")
    ] = "spike",
    peak: Annotated[
        float | None,
        Option(help="Most calls, for a trace that is built in; 80 % of what the fleets can have.", min=1),
    ] = None,
    call_seconds: Annotated[float, Option(help="Mean length of a call, s; lengths are exponential.", min=1)] = 180.0,
    seed: Annotated[int, Option(help="The same seed gives the same result.", min=0)] = 1,
    boot: Annotated[
        list[str] | None,
        Option(metavar="FLEET=COLD/WARM", help="Seconds of a boot, new and from the warm pool (metric ColdStart)."),
    ] = None,
    quota: Annotated[
        list[str] | None,
        Option(metavar="FAMILY=VCPU", help=f"vCPU that the account has: {', '.join(quota_codes())}."),
    ] = None,
    spot_interruptions: Annotated[float, Option(help="Interruptions of each spot host a day.", min=0)] = 0.0,
    rollout: Annotated[
        list[str] | None, Option(metavar="FLEET", help="Replace this fleet's hosts meanwhile, as a deploy would.")
    ] = None,
    silent: Annotated[
        list[str] | None, Option(metavar="METRIC", help="No host publishes this metric, from the beginning on.")
    ] = None,
    peers: Annotated[
        bool, Option("--peers", help="Compare with the seed's table, CPU target tracking and KEDA on the queue.")
    ] = False,
    output: Annotated[Path | None, Option(metavar="DIR", help="Write calls.png here.")] = None,
    region: Region = None,
    as_json: Json = False,
) -> None:
    """Simulate callers and scaling by the file's own rules, and by those that others use.

    Warm pools of the file count. Its scaling rules are judged as CloudWatch and EC2 Auto Scaling judge them, gateway
    tasks follow their sockets, and replicas on Azure what KEDA is told. Calls of a host are those that `voice plan`
    shows; how long one boots is taken from the catalogue and printed with its source.

    Example: voice simulate deployments/production-us-east-1.yaml --load spike --output build/spike
    """
    deployment = load_region(file, region)
    aws = deployment.aws_half
    try:
        plans = _plans(deployment, boot or [])
        trace = _trace(load, peak, plans)
        settings = Settings(
            zones=aws.availability_zones if aws else deployment.azure.availability_zones,
            call_s=call_seconds,
            cross_zone=aws is None or aws.edge.cross_zone,
            seed=seed,
            quotas=_of_codes(_pairs("--quota", quota or [], r"\d+", int)),
            interruptions_per_day=spot_interruptions,
            rolls=_known("--rollout", rollout or [], "fleet", [plan.name for plan in plans]),
            silent=_known("--silent", silent or [], "metric of a rule", _metrics(plans)),
            rollout=aws.rollout if aws else Rollout(),
        )
    except (TraceError, ValueError) as error:
        raise stop(str(error), REFUSED) from None
    results = _run((*PEERS, own(plans)) if peers else (own(plans),), plans, trace, settings)
    # A spike is what the fleet's speed decides; nobody has measured how busy a full host is, so all answers are shown.
    swept = {busy: _of_busy(plans, trace, settings, busy, results[-1]) for busy in (SWEEP if load == "spike" else ())}
    if as_json:
        print_json(as_dict(trace, results, swept, seed=seed), deployment.name)
    else:
        title = f"{deployment.name}, {trace.name}: {trace.calls[0]:,.0f} calls, at most {trace.peak:,.0f}"
        out.print(policy_table(title, [summarize(result) for result in results]))
        if swept:
            out.print(sweep_table(swept))
        found = shortfall(results[-1])
        if found:
            out.print(f"{results[-1].policy}: {found}", soft_wrap=True)
        out.print(fleet_table(plans))
    if output:
        try:
            picture = draw(results, f"{deployment.name}: {trace.name}, at most {trace.peak:,.0f} calls", output)
        except OSError as error:
            raise stop(f"{output}: {error.strerror}", REFUSED) from None
        err.print(f"wrote {escape(str(picture))}", soft_wrap=True)


def _plans(deployment: Deployment, boot: list[str]) -> tuple[FleetPlan, ...]:
    measured = _pairs("--boot", boot, r"\d+/\d+", lambda text: (float(text.split("/")[0]), float(text.split("/")[1])))
    plans = fleet_plans(deployment, measured)
    for plan in plans:
        check_modelled(plan)
    return plans


def _known(option: str, given: list[str], what: str, known: list[str]) -> frozenset[str]:
    for name in given:
        if name not in known:
            raise ValueError(f"{option} {name}: no such {what}; there are {', '.join(known)}")
    return frozenset(given)


def _metrics(plans: tuple[FleetPlan, ...]) -> list[str]:
    return list(dict.fromkeys(rule.metric for plan in plans for rule in plan.rules))


def _trace(load: str, peak: float | None, plans: tuple[FleetPlan, ...]) -> Trace:
    if load == "spot-wave" and not any(plan.spot for plan in plans):
        raise ValueError("--load spot-wave: no fleet of the file is bought as spot")
    if load in BUILT_IN:
        return BUILT_IN[load](peak or usual_peak(plans))
    if not Path(load).suffix:
        raise ValueError(f"no trace {load}: choose {', '.join(BUILT_IN)} or a CSV file")
    if peak:
        raise ValueError("--peak is for traces that are built in; a CSV file says how many calls there are")
    return read(Path(load))


def _pairs(option: str, given: Iterable[str], pattern: str, convert: Callable[[str], T]) -> dict[str, T]:
    pairs = {}
    for text in given:
        name, _, value = text.partition("=")
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{option} {text}: not NAME=VALUE as `voice simulate --help` shows it")
        pairs[name] = convert(value)
    return pairs


def _of_codes(quotas: dict[str, int]) -> dict[str, int]:
    codes = quota_codes()
    for family in quotas.keys() - codes:
        raise ValueError(f"--quota {family}: no such family; there are {', '.join(codes)}")
    return {codes[family]: vcpus for family, vcpus in quotas.items()}


def _of_busy(plans: tuple[FleetPlan, ...], trace: Trace, settings: Settings, busy: float, at_one: Result) -> Result:
    if busy == settings.busy_at_full:
        return at_one
    (result,) = _run((own(plans),), plans, trace, replace(settings, busy_at_full=busy))
    return result


def _run(compared: Iterable[Policy], plans: tuple[FleetPlan, ...], trace: Trace, settings: Settings) -> list[Result]:
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        for policy in compared:
            task = progress.add_task(policy.name, total=trace.duration_s)

            def tell(second: float, task: TaskID = task) -> None:
                progress.update(task, completed=second)

            with heartbeat(err, f"simulate {policy.name}"):
                results.append(Simulation(plans, policy, trace, settings, tell).run())
    return results
