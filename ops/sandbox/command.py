"""`voice sandbox`: rehearse a deployment on this machine."""

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import moto  # noqa: F401  the local AWS is a process of its own; without it this one says what is missing
import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from blueprint.file.model.deployment import Deployment, Environment
from ops.exits import FAILED, INTERRUPTED
from ops.findings import load_checked
from ops.images.rehearsal import RehearsalError
from ops.output import WholeTable, describe_types, out, stack_table, stop
from ops.progress import Progress
from ops.sandbox.azure import rehearse_azure
from ops.sandbox.month import REDIS, Month, fail_once
from sandbox.aws.alert_drill import DrillError
from sandbox.aws.cdk import CdkError
from sandbox.aws.claim import Claim
from sandbox.aws.drill import Outcome
from sandbox.aws.rehearsal import Rehearsal
from sandbox.azure.errors import EngineError
from sandbox.hosts.disk import HostsError

FILE_HELP = "Deployment file to rehearse."
HOSTS_HELP = "Boot the file's hosts in virtual machines instead, as root on Debian."
FEW = 10
"""Claims that are printed one by one."""
KEEP_HELP = "Leave the local AWS running, and print how to reach it and how to stop it."


def sandbox(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help=FILE_HELP)] = Path("deployments/sandbox.yaml"),
    hosts: Annotated[bool, typer.Option("--hosts", help=HOSTS_HELP)] = False,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Rehearse a file: deploy it to a local AWS, drill it, tear it down; run its Pulumi programs.

    A file for staging or production lives through a first month too: a deploy that fails, a rollout that an alarm takes
    back, another machine image, new passwords, a restore, and a teardown that leaves what is kept.

    The CDK CLI deploys, as it does to AWS. Needs no account, no credentials, no Docker and no network. Ctrl-C stops
    and removes everything.

    Example: voice sandbox deployments/sandbox.yaml
    """
    deployment = load_checked(file)
    try:
        if hosts:
            # Imported here: it runs programs of a checkout, which an installed `voice` does without.
            from ops.sandbox.hosts import rehearse_hosts  # noqa: PLC0415

            passed = rehearse_hosts(deployment, Progress(out))
        else:
            passed = all([_rehearse_aws(deployment, keep=keep), _rehearse_azure(deployment)])
    except (CdkError, DrillError, EngineError, HostsError, RehearsalError) as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: the local AWS and its files are gone", INTERRUPTED) from None
    if not passed:
        raise typer.Exit(FAILED)


def _rehearse_azure(deployment: Deployment) -> bool:
    return deployment.azure_half is None or rehearse_azure(deployment, Progress(out))


def _rehearse_aws(deployment: Deployment, *, keep: bool) -> bool:
    if deployment.aws_half is None:
        return True
    lives_on = deployment.environment is not Environment.SANDBOX
    with Rehearsal(deployment, real_stores=lives_on and shutil.which(REDIS) is not None) as rehearsal:
        return _rehearse(deployment, rehearsal, keep=keep)


def _rehearse(deployment: Deployment, rehearsal: Rehearsal, *, keep: bool) -> bool:
    progress = Progress(out)
    rehearsal.cdk.on_line = progress.detail
    with progress.phase("bootstrap an empty account"):
        rehearsal.bootstrap()
    lives_on = deployment.environment is not Environment.SANDBOX
    if lives_on:
        with progress.phase("a first deploy that fails"):
            fail_once(deployment, rehearsal)
    with progress.phase("cdk deploy --all"):
        rehearsal.cdk.deploy()
    out.print(stack_table("created by CloudFormation", rehearsal.stacks()))
    with progress.phase("verify through boto3"):
        claims = rehearsal.claims()
    passed = _tell(claims)
    with progress.phase("scaling drill"):
        outcomes = list(rehearsal.drill())
    out.print(_drill_table(outcomes))
    with progress.phase("alert drill: callers are affected"):
        message = rehearsal.alert()
    out.print(f"  SNS told a subscriber: {message.subject}", soft_wrap=True)
    out.print(f"  {message.cause}; {message.description}", soft_wrap=True)
    passed = passed and all(outcome.passed for outcome in outcomes)
    if keep:
        rehearsal.keep()
        _print_access(rehearsal)
        return passed
    if lives_on:
        month = Month(deployment, rehearsal)
        for label, step in month.steps.items():
            with progress.phase(label):
                claims = month.play(step)
            passed = _tell(claims) and passed
        return passed
    with progress.phase("cdk destroy --all"):
        rehearsal.cdk.destroy()
    left = rehearsal.left()
    out.print(f"  teardown: {left.total()} left" + (f": {describe_types(left)}" if left else ""))
    return passed and not left


def _tell(claims: list[Claim]) -> bool:
    """Count the claims that hold, and name those that do not, or all where they are few."""
    broken = [claim for claim in claims if not claim.holds]
    out.print(f"  {len(claims) - len(broken)} of {len(claims)} claims hold")
    for claim in claims if len(claims) <= FEW else broken:
        out.print(f"  {'[green]✓[/]' if claim.holds else '[red]✗[/]'} {escape(claim.text)}", soft_wrap=True)
    return not broken


def _drill_table(outcomes: list[Outcome]) -> Table:
    table = WholeTable(title="scaling drill: desired capacity of each group", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("fleet", "scenario", "before", "after", ""):
        table.add_column(heading)
    for outcome in outcomes:
        table.add_row(
            outcome.scenario.fleet,
            outcome.scenario.name,
            _capacities(outcome.before),
            _capacities(outcome.after),
            "[green]✓[/]" if outcome.passed else f"[red]✗ expected {_capacities(outcome.expected)}[/]",
        )
    return table


def _capacities(capacities: dict[str, int]) -> str:
    return ", ".join(str(count) for count in capacities.values())


def _print_access(rehearsal: Rehearsal) -> None:
    out.print("\nthe local AWS is still running; to use it:")
    for name, value in rehearsal.access().items():
        out.print(f"export {name}={shlex.quote(value)}", soft_wrap=True)
    out.print(f"to stop it and remove its files: kill {rehearsal.aws.pid}; rm -r {rehearsal.home}", soft_wrap=True)
