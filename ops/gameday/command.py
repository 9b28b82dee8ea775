"""`voice gameday`: what breaks, what it costs callers, and who says what to do."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import moto  # noqa: F401  the local AWS is a process of its own; without it this one says what is missing
import typer
from rich import box

from blueprint.aws.alerts import alerts as aws_alerts
from blueprint.file.model.deployment import Deployment
from blueprint.observability.azure_alerts import alerts as azure_alerts
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.findings import load_region
from ops.gameday.simulated import Effect, play
from ops.options import DeploymentFile, Json, Region
from ops.output import WholeTable, err, out, print_json, stop
from ops.progress import Progress, heartbeat
from ops.sandbox.month import BAD_IMAGE, REDIS, SERVE, Month, served
from sandbox.aws.cdk import CdkError
from sandbox.aws.claim import Claim
from sandbox.aws.rehearsal import Rehearsal


class Runbooks(NamedTuple):
    """What covers a scenario: alerts of each cloud whose runbooks say what to do, and a procedure."""

    aws: tuple[str, ...]
    azure: tuple[str, ...]
    procedure: str = ""


SCENARIOS: Mapping[str, Runbooks] = {
    "zone loss": Runbooks(("gateway-unhealthy", "vad-hosts-unhealthy", "asr-slots-exhausted"), ("node-not-ready",)),
    "region loss": Runbooks(("gateway-unhealthy", "asr-slots-exhausted"), (), "region-loss"),
    "spot wave": Runbooks(("asr-slots-exhausted",), ("replicas-missing",), "capacity-shortage"),
    "quota refusal": Runbooks(("asr-slots-exhausted",), ("replicas-missing",), "capacity-shortage"),
    "silent metric": Runbooks(("telemetry-silent",), ("telemetry-silent",)),
    "store failover": Runbooks(("valkey-replication-lag",), (), "state"),
    "bad image": Runbooks(("hosts-abandoned",), (), "rollback"),
}


@dataclass(frozen=True)
class Row:
    """One scenario.

    Attributes:
        lost: Calls that it costs; ``None`` where it was not played.
        offered: Callers who came meanwhile; ``None`` where nobody calls.
        recovers_s: ``None`` where callers are not all carried again within the hours that were played.
        by: Whose clock that is by, or why it was not played.
        runbooks: Pages of `docs/runbooks`.
        claims: What did not hold.
    """

    scenario: str
    lost: int | None
    offered: int | None
    recovers_s: float | None
    by: str
    runbooks: tuple[str, ...]
    claims: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.claims and bool(self.runbooks)


def gameday(file: DeploymentFile, region: Region = None, as_json: Json = False) -> None:
    """Play a bad day: what each loss costs callers, how long it lasts, and which runbook covers it.

    The loss of a zone or a region, a spot wave, a quota that is spent and metrics that fall silent are played on the
    simulator, against the same hours without them; a store failover and an image that does not start on a local AWS, as
    `voice sandbox` has it. A scenario without a runbook, and a drill that goes wrong, exit with 1. Needs no account and
    no network.

    Example: voice gameday deployments/small.yaml
    """
    deployment = load_region(file, region)
    try:
        with heartbeat(err, "simulate"):
            simulated = play(deployment)
        rows = [_simulated(deployment, name, effect) for name, effect in simulated.items()]
        rows += _rehearsed(deployment)
    except ValueError as error:
        raise stop(str(error), REFUSED) from None
    except CdkError as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: the local AWS and its files are gone", INTERRUPTED) from None
    if as_json:
        print_json({"scenarios": [vars(row) | {"passed": row.passed} for row in rows]}, deployment.name)
    else:
        _print(rows)
    if not all(row.passed for row in rows):
        raise typer.Exit(FAILED)


def _simulated(deployment: Deployment, name: str, effect: Effect | str) -> Row:
    covered = runbooks(deployment, name)
    if isinstance(effect, str):
        return Row(name, None, None, None, effect, covered)
    return Row(name, effect.lost, effect.offered, effect.recovers_s, "simulated", covered)


def _rehearsed(deployment: Deployment) -> Iterator[Row]:
    names = ("store failover", "bad image")
    if deployment.aws_half is None:
        yield from (_simulated(deployment, name, "the file has no section `aws`") for name in names)
        return
    progress = Progress(err)
    with Rehearsal(deployment, real_stores=shutil.which(REDIS) is not None) as rehearsal:
        rehearsal.cdk.on_line = progress.detail
        with progress.phase("deploy to a local AWS"):
            rehearsal.bootstrap()
            month = Month(deployment, rehearsal)
            month.play(month.steps[SERVE])
        if deployment.aws.state.replicas:
            yield _drilled(deployment, names[0], progress, lambda: month.play(month.fail_over))
        else:
            lost = "every call: `state.replicas` is 0, no node takes over"
            yield Row(names[0], None, None, None, lost, runbooks(deployment, names[0]))
        yield _drilled(deployment, names[1], progress, lambda: month.play(month.steps[BAD_IMAGE]))


def _drilled(deployment: Deployment, name: str, progress: Progress, drill: Callable[[], list[Claim]]) -> Row:
    begin = time.monotonic()
    with progress.phase(name):
        broken = tuple(claim.text for claim in drill() if not claim.holds)
    took_s = time.monotonic() - begin
    return Row(name, None if broken else 0, None, took_s, "the local AWS", runbooks(deployment, name), broken)


def runbooks(deployment: Deployment, scenario: str) -> tuple[str, ...]:
    """Return the pages that cover a scenario: those that an alert of this file leads to, and then its procedure.

    A file without digests gets some: until then it has no hosts, and so no alert on their silence.
    """
    named = SCENARIOS[scenario]
    if deployment.aws_half:
        known = {alert.id for alert in aws_alerts(served(deployment))}
        covered = [f"{id_}.md" for id_ in named.aws if id_ in known]
    else:
        known = {alert.id for alert in azure_alerts(deployment)}
        covered = [f"azure/{id_}.md" for id_ in named.azure if id_ in known]
    return (*covered, *([f"procedures/{named.procedure}.md"] if named.procedure else []))


def _print(rows: list[Row]) -> None:
    table = WholeTable(title="game day", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("scenario", "calls lost", "recovers after", "by", "runbook", ""):
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
            ", ".join(row.runbooks) or "none",
            "[green]✓[/]" if row.passed else "[red]✗[/]",
        )
    out.print(table)
    for row in rows:
        for claim in row.claims:
            out.print(f"[red]✗[/] {row.scenario}: {claim}", soft_wrap=True)
        if not row.runbooks:
            out.print(f"[red]✗[/] {row.scenario}: no alert of this file leads to a runbook for it", soft_wrap=True)
