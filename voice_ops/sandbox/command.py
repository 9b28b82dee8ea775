"""`voice sandbox`: rehearse the deploy and teardown of a file on this machine."""

import shlex
import shutil
from collections import Counter
from pathlib import Path
from typing import Annotated

import moto  # noqa: F401  the local AWS runs in another process; importing moto here reports a missing extra
import typer
from rich import box
from rich.table import Table

from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_ops.exits import FAILED, INTERRUPTED
from voice_ops.findings import load_checked_deployment
from voice_ops.images.rehearsal import RehearsalError
from voice_ops.output import UntruncatedTable, create_exit, create_stack_table, format_markup, format_type_counts, out
from voice_ops.progress import Progress
from voice_ops.sandbox.azure import rehearse_azure
from voice_ops.sandbox.month import REDIS_SERVER_EXECUTABLE, OperationsRehearsal, fail_first_deploy
from voice_sandbox.azure.errors import EngineError
from voice_sandbox.hosts.disk import HostRehearsalError
from voice_sandbox.rehearsals.alert_drill import AlertMessage, DrillError
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import CdkError
from voice_sandbox.rehearsals.claim import VerificationResult
from voice_sandbox.rehearsals.drill import ScenarioResult

FILE_HELP = "Deployment file to rehearse."
HOSTS_HELP = "Boot the file's hosts in virtual machines instead. Requires root on Debian."
ENGINES_HELP = "Run a conversation with the demo agent instead, on a vLLM server that uses the file's flags."
MAX_LISTED_CLAIMS = 10
"""Maximum number of checks for which passed checks are also printed individually."""
KEEP_HELP = "Keep the local AWS running, and print its address and how to stop it."


def sandbox(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help=FILE_HELP)] = Path("deployments/sandbox.yaml"),
    hosts: Annotated[bool, typer.Option("--hosts", help=HOSTS_HELP)] = False,
    engines: Annotated[bool, typer.Option("--engines", help=ENGINES_HELP)] = False,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Deploy a file's stacks to an AWS emulator, run drills, delete the stacks, and run the Pulumi programs.

    For staging and production it also rehearses day-2 operations: a failed deploy, a rollout that an
    alarm rolls back, a new machine image, a password rotation, a restore, a teardown that retains resources, and a
    deploy that imports them. A file with several regions is rehearsed in each.

    The deploy uses the CDK CLI, as on AWS. Requires no account, no credentials, no Docker and no network. Ctrl-C stops
    and removes everything.

    Example: voice sandbox deployments/sandbox.yaml
    """
    deployment = load_checked_deployment(file)
    try:
        if hosts:
            # Imported here, since it runs programs of a checkout, which an installed `voice` does not contain.
            from voice_ops.sandbox.hosts import rehearse_hosts  # noqa: PLC0415

            passed = rehearse_hosts(deployment, Progress(out))
        elif engines:
            from voice_ops.demo.agent.command import demo  # noqa: PLC0415  needs a checkout as well

            demo(engines=file)
            passed = True
        else:
            passed = all([_rehearse_aws(deployment, keep=keep), _rehearse_azure(deployment)])
    except (CdkError, DrillError, EngineError, HostRehearsalError, RehearsalError) as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: the local AWS and its files are gone", INTERRUPTED) from None
    if not passed:
        raise typer.Exit(FAILED)


def _rehearse_azure(deployment: Deployment) -> bool:
    return deployment.azure_section is None or rehearse_azure(deployment, Progress(out))


def _rehearse_aws(deployment: Deployment, *, keep: bool) -> bool:
    if deployment.aws_section is None:
        return True
    runs_continuously = deployment.environment is not Environment.SANDBOX
    with Rehearsal(
        deployment, real_stores=runs_continuously and shutil.which(REDIS_SERVER_EXECUTABLE) is not None
    ) as rehearsal:
        return _rehearse(deployment, rehearsal, keep=keep)


def _rehearse(deployment: Deployment, rehearsal: Rehearsal, *, keep: bool) -> bool:
    progress = Progress(out)
    rehearsal.cdk.on_line = progress.show_detail
    with progress.phase("bootstrap an empty account"):
        rehearsal.bootstrap()
    runs_continuously = deployment.environment is not Environment.SANDBOX
    if runs_continuously:
        with progress.phase("a first deploy that fails"):
            fail_first_deploy(deployment, rehearsal)
    with progress.phase("cdk deploy --all"):
        rehearsal.cdk.deploy()
    out.print(create_stack_table("created by CloudFormation", rehearsal.count_resources()))
    with progress.phase("verify through boto3"):
        claims = rehearsal.verify()
    passed = print_claims(claims)
    with progress.phase("scaling drill"):
        outcomes = list(rehearsal.run_drills())
    out.print(create_drill_table(outcomes))
    with progress.phase("alert drill: callers are affected"):
        message = rehearsal.trigger_alert()
    print_alert(message)
    passed = passed and all(outcome.passed for outcome in outcomes)
    if keep:
        rehearsal.keep_running()
        _print_access(rehearsal)
        return passed
    if runs_continuously:
        regions = deployment.split_by_region()
        for regional in regions:
            month = OperationsRehearsal(regional, rehearsal)
            prefix = f"{regional.aws.region}: " if len(regions) > 1 else ""
            for label, step in month.steps.items():
                with progress.phase(f"{prefix}{label}"):
                    claims = month.run_step(step)
                passed = print_claims(claims) and passed
        return passed
    with progress.phase("cdk destroy --all"):
        rehearsal.cdk.destroy()
    # Each region's API retains the role of the account's API logs, since other deployments may use it.
    kept = Counter({"role": len(deployment.split_by_region())})
    remaining = rehearsal.count_remaining_resources() - kept
    out.print(
        f"  teardown: {remaining.total()} left{f': {format_type_counts(remaining)}' if remaining else ''}; "
        f"kept for other deployments: {format_type_counts(kept)}"
    )
    return passed and not remaining


def print_alert(message: AlertMessage) -> None:
    """Print an alert as a subscriber receives it."""
    out.print(f"  SNS notified a subscriber: {message.subject}", soft_wrap=True)
    out.print(f"  {message.cause}; {message.description}", soft_wrap=True)


def print_claims(claims: list[VerificationResult]) -> bool:
    """Print the number of passed checks and each failed check. Return True if all checks passed.

    Passed checks are printed too if there are at most ``MAX_LISTED_CLAIMS`` checks.
    """
    broken = [claim for claim in claims if not claim.passed]
    out.print(f"  {len(claims) - len(broken)} of {len(claims)} checks passed")
    for claim in claims if len(claims) <= MAX_LISTED_CLAIMS else broken:
        out.print(format_markup(f"  {'[green]✓[/]' if claim.passed else '[red]✗[/]'} {{}}", claim.text), soft_wrap=True)
    return not broken


def create_drill_table(outcomes: list[ScenarioResult]) -> Table:
    """Return a table of the scenarios in a scaling drill, with the capacities before and after each."""
    table = UntruncatedTable(
        title="scaling drill: desired capacity of each group", title_justify="left", box=box.SIMPLE_HEAD
    )
    for heading in ("fleet", "scenario", "before", "after", ""):
        table.add_column(heading)
    for outcome in outcomes:
        table.add_row(
            outcome.scenario.fleet,
            outcome.scenario.name,
            _format_capacities(outcome.capacities_before),
            _format_capacities(outcome.capacities_after),
            format_markup("[green]✓[/]")
            if outcome.passed
            else format_markup("[red]✗ expected {}[/]", _format_capacities(outcome.expected_capacities)),
        )
    return table


def _format_capacities(capacities: dict[str, int]) -> str:
    return ", ".join(str(count) for count in capacities.values())


def _print_access(rehearsal: Rehearsal) -> None:
    out.print("\nthe local AWS is still running; to use it:")
    for name, value in rehearsal.build_tool_environment().items():
        out.print(f"export {name}={shlex.quote(value)}", soft_wrap=True)
    out.print(f"to stop it and remove its files: kill {rehearsal.aws.pid}; rm -r {rehearsal.home}", soft_wrap=True)
