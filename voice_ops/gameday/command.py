"""`voice gameday`: rehearse failures, and show their effect on callers and their runbooks."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import moto  # noqa: F401  the local AWS runs in another process; importing moto here reports a missing extra
import typer
from rich import box

from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.aws.alerts import build_alerts as aws_alerts
from voice_blueprint.observability.azure.alerts import build_alerts as azure_alerts
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.gameday.simulated import ScenarioEffect, simulate_scenarios
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import UntruncatedTable, create_exit, err, format_markup, out, print_json
from voice_ops.progress import Progress, print_heartbeats
from voice_ops.sandbox.month import (
    BAD_IMAGE_STEP_LABEL,
    REDIS_SERVER_EXECUTABLE,
    SERVE_STEP_LABEL,
    OperationsRehearsal,
    add_first_deploy_settings,
)
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import CdkError
from voice_sandbox.rehearsals.claim import VerificationResult


class ScenarioRunbooks(NamedTuple):
    """Alerts on each cloud that cover a scenario, and the name of a procedure. Each alert has a runbook."""

    aws: tuple[str, ...]
    azure: tuple[str, ...]
    procedure: str = ""


SILENT_METRIC = "silent metric"
RUNBOOKS_BY_SCENARIO: Mapping[str, ScenarioRunbooks] = {
    "zone loss": ScenarioRunbooks(
        ("gateway-unhealthy", "vad-hosts-unhealthy", "asr-slots-exhausted"), ("node-not-ready",)
    ),
    "region loss": ScenarioRunbooks(("gateway-unhealthy", "asr-slots-exhausted"), (), "region-loss"),
    "spot wave": ScenarioRunbooks(("asr-slots-exhausted",), ("replicas-missing",), "capacity-shortage"),
    "quota refusal": ScenarioRunbooks(
        ("asr-slots-exhausted", "sessions-refused"), ("replicas-missing",), "capacity-shortage"
    ),
    SILENT_METRIC: ScenarioRunbooks(("telemetry-silent",), ("telemetry-silent",)),
    "store failover": ScenarioRunbooks(("valkey-replication-lag",), (), "state"),
    "bad image": ScenarioRunbooks(("hosts-abandoned",), (), "rollback"),
}


@dataclass(frozen=True)
class ScenarioResult:
    """Result of a scenario.

    Attributes:
        lost: Number of lost calls; ``None`` if it is unknown.
        offered: Number of arriving callers; ``None`` without calls.
        recovers_s: Time to recovery in seconds; ``None`` if it is unknown or exceeds the simulated hours.
        by: Source of the result, or the reason why there is no result.
        runbooks: Pages of `docs/runbooks`.
        claims: Failed checks.
        fired: Alerts that fired.
    """

    scenario: str
    lost: int | None
    offered: int | None
    recovers_s: float | None
    by: str
    runbooks: tuple[str, ...]
    claims: tuple[str, ...] = ()
    fired: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.claims and bool(self.runbooks)


def gameday(file: DeploymentFileArgument, region: RegionOption = None, as_json: JsonOption = False) -> None:
    """Rehearse failures, and show affected calls, time to recover and the runbook for each.

    Simulated, with the file's alerts: the loss of a zone or a region, spot interruptions, an exhausted quota and
    missing metrics, compared with the same hours without them. On the local AWS of `voice sandbox`: a store failover
    and an image that does not start. Exits with 1 if a scenario has no runbook, affects calls and fires none of its
    runbooks' alerts, or if a drill fails. Requires no account and no network.

    Example: voice gameday deployments/small.yaml
    """
    deployment = load_region_deployment(file, region)
    try:
        with print_heartbeats(err, "simulate"):
            simulated = simulate_scenarios(deployment)
        rows = [_create_simulated_result(deployment, name, effect) for name, effect in simulated.items()]
        rows += _run_drills(deployment)
    except ValueError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except CdkError as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: the local AWS and its files are gone", INTERRUPTED) from None
    if as_json:
        print_json({"scenarios": [vars(row) | {"passed": row.passed} for row in rows]}, deployment.name)
    else:
        _print_results(rows)
    if not all(row.passed for row in rows):
        raise typer.Exit(FAILED)


def _create_simulated_result(deployment: Deployment, name: str, effect: ScenarioEffect | str) -> ScenarioResult:
    pages = list_runbook_pages(deployment, name)
    if isinstance(effect, str):
        return ScenarioResult(name, None, None, None, effect, pages)
    named = [Path(page).stem for page in pages if not page.startswith("procedures/")]
    no_alert = f"no alert with the runbook {' or '.join(pages)} fires"
    # A fault without lost calls does not have to page an operator. Missing metrics cause no lost calls until the load
    # changes.
    needs_alert = effect.lost or name == SILENT_METRIC
    claims = (no_alert,) if named and needs_alert and not set(named) & set(effect.fired) else ()
    return ScenarioResult(
        name, effect.lost, effect.offered, effect.recovers_s, "simulated", pages, claims, effect.fired
    )


def _run_drills(deployment: Deployment) -> Iterator[ScenarioResult]:
    names = ("store failover", "bad image")
    if deployment.aws_section is None:
        yield from (_create_simulated_result(deployment, name, "the file has no section `aws`") for name in names)
        return
    progress = Progress(err)
    with Rehearsal(deployment, real_stores=shutil.which(REDIS_SERVER_EXECUTABLE) is not None) as rehearsal:
        rehearsal.cdk.on_line = progress.show_detail
        with progress.phase("deploy to a local AWS"):
            rehearsal.bootstrap()
            month = OperationsRehearsal(deployment, rehearsal)
            month.run_step(month.steps[SERVE_STEP_LABEL])
        if deployment.aws.state.replicas:
            yield _run_drill(deployment, names[0], progress, lambda: month.run_step(month.fail_over))
        else:
            lost = "every call: `state.replicas` is 0, so no replica is promoted"
            yield ScenarioResult(names[0], None, None, None, lost, list_runbook_pages(deployment, names[0]))
        yield _run_drill(deployment, names[1], progress, lambda: month.run_step(month.steps[BAD_IMAGE_STEP_LABEL]))


def _run_drill(
    deployment: Deployment, name: str, progress: Progress, drill: Callable[[], list[VerificationResult]]
) -> ScenarioResult:
    begin = time.monotonic()
    with progress.phase(name):
        failed_claims = tuple(claim.text for claim in drill() if not claim.passed)
    duration_s = time.monotonic() - begin
    return ScenarioResult(
        name,
        None if failed_claims else 0,
        None,
        duration_s,
        "the local AWS",
        list_runbook_pages(deployment, name),
        failed_claims,
    )


def list_runbook_pages(deployment: Deployment, scenario: str) -> tuple[str, ...]:
    """Return the runbooks of the deployment's alerts that cover a scenario, followed by the procedure.

    Placeholders replace missing digests, since a file without digests has no hosts, and therefore no alert on
    missing telemetry.
    """
    named = RUNBOOKS_BY_SCENARIO[scenario]
    if deployment.aws_section:
        alert_ids = {alert.id for alert in aws_alerts(add_first_deploy_settings(deployment))}
        pages = [f"{id_}.md" for id_ in named.aws if id_ in alert_ids]
    else:
        alert_ids = {alert.id for alert in azure_alerts(deployment)}
        pages = [f"azure/{id_}.md" for id_ in named.azure if id_ in alert_ids]
    return (*pages, *([f"procedures/{named.procedure}.md"] if named.procedure else []))


def _print_results(rows: list[ScenarioResult]) -> None:
    table = UntruncatedTable(title="game day", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("scenario", "calls lost", "recovers after", "by", "alerts", "runbook", ""):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            row.scenario,
            "-" if row.lost is None else f"{row.lost:,} of {row.offered:,}" if row.offered else f"{row.lost:,}",
            "-"
            if row.lost is None
            else "not within the hours"
            if row.recovers_s is None
            else f"{row.recovers_s:.0f} s",
            row.by,
            ", ".join(row.fired) or "-",
            ", ".join(row.runbooks) or "none",
            format_markup("[green]✓[/]" if row.passed else "[red]✗[/]"),
        )
    out.print(table)
    for row in rows:
        for claim in row.claims:
            out.print(format_markup("[red]✗[/] {}: {}", row.scenario, claim), soft_wrap=True)
        if not row.runbooks:
            text = format_markup("[red]✗[/] {}: no alert of this file has a runbook for it", row.scenario)
            out.print(text, soft_wrap=True)
