"""`voice teardown`: take a deployment down, and say what is left."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.markup import escape

from blueprint.file.model.deployment import Deployment, Environment
from ops.aws.account import Account, sign_in
from ops.aws.refusals import ERRORS, explain, failed
from ops.cost.command import price_list
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.findings import load_region
from ops.options import DeploymentFile, Json, Region
from ops.output import err, out, print_json, stop
from ops.progress import Progress
from ops.synthesis import synthesize, templates
from ops.teardown.azure import azure_order
from ops.teardown.plan import Plan, Sizes, plan
from ops.teardown.remains import Left, is_expected, remains
from ops.teardown.removal import OperatorsAws, Resource, empty_log_buckets, existing, lift_protection, sizes
from ops.teardown.report import print_azure, print_left, print_plan
from sandbox.aws.cdk import Cdk, CdkError
from sandbox.azure.errors import EngineError

NAME_HELP = "Name of the deployment, typed back; production, and what is protected, is torn down with it only."
YES_HELP = "Do not ask, for pipelines."
DRY_RUN_HELP = "Show what would be deleted and kept; delete nothing."


def teardown(
    file: DeploymentFile,
    *,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help=NAME_HELP)] = None,
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN_HELP)] = False,
    region: Region = None,
    as_json: Json = False,
) -> None:
    """Show what goes, what stays and what that costs; delete the stacks; say what is left.

    What is left is looked for in every region used. The AWS half goes with `cdk destroy`, access logs included. For
    the Azure half the order is printed, which the Pulumi CLI carries out. Exits with 1 when something is left that
    should not be.

    Example: voice teardown deployments/sandbox.yaml --dry-run
    """
    deployment = load_region(file, region)
    if not dry_run:
        _refuse_guarded(deployment, name)
    report: dict[str, Any] = {"dry_run": dry_run}
    gone = True
    try:
        if deployment.aws_half:
            gone = tear_down(deployment, report, dry_run=dry_run, ask=not yes, as_json=as_json)
        if deployment.azure_half:
            report["azure"] = order = azure_order(deployment)
            if not as_json:
                print_azure(order)
            gone = gone and dry_run
    except ERRORS as error:
        raise failed(error) from None
    except (CdkError, EngineError) as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        text = "interrupted: stacks that were being deleted may still go; run the command again"
        raise stop(text, INTERRUPTED) from None
    if as_json:
        print_json(report, deployment.name)
    if not gone:
        raise typer.Exit(FAILED)


def _is_guarded(deployment: Deployment) -> bool:
    protected = deployment.aws_half and deployment.aws_half.deletion_protection
    return deployment.environment is Environment.PRODUCTION or bool(protected)


def _refuse_guarded(deployment: Deployment, name: str | None) -> None:
    if _is_guarded(deployment) and name != deployment.name:
        typed = "" if name is None else f", not {name}"
        why = "production" if deployment.environment is Environment.PRODUCTION else "protected"
        raise stop(f"{deployment.name} is {why}: type its name back, --name {deployment.name}{typed}", REFUSED)
    if name not in {None, deployment.name}:
        raise stop(f"the file is {deployment.name}, not {name}", REFUSED)


def tear_down(deployment: Deployment, report: dict[str, Any], *, dry_run: bool, ask: bool, as_json: bool) -> bool:
    """Tear the AWS half down, or show how.

    Args:
        report: Gets what was planned, and what is left.

    Returns:
        Whether nothing unexpected is left.
    """
    made = templates(deployment)
    account: Account | None = None
    live: dict[str, dict[str, Any]] = {}
    resources: list[Resource] = []
    stored: Sizes = {}
    try:
        signed_in = Account(deployment, made, sign_in(deployment))
        _refuse_other_account(signed_in)
        live = signed_in.live_templates()
        resources = existing(signed_in, live)
        stored = sizes(signed_in, resources)
        account = signed_in
    except ERRORS as error:
        if not dry_run:
            raise
        found = escape(explain(error).found)
        err.print(f"no account was asked, so this is what the file makes: {found}", soft_wrap=True)
    planned = plan((live if account else None) or made, deployment.aws, price_list(), stored)
    number = account.caller["Account"] if account else None
    report["aws"] = {"account": number, "deployed": bool(account and live), **vars(planned)}
    report["aws"] |= {"kept_usd_per_month": planned.usd_per_month}
    if not as_json:
        out.print(f"AWS account {number}, {deployment.aws.region}" if number else "AWS")
        print_plan(planned)
    if dry_run or account is None:
        return True
    if ask and not _is_guarded(deployment):
        typer.confirm(f"Delete the stacks of {deployment.name} in account {number}?", abort=True, err=True)
    _delete(account, resources)
    return _left(account, planned, resources, report, as_json=as_json)


def _refuse_other_account(account: Account) -> None:
    found, meant = account.caller["Account"], account.deployment.aws.account
    if meant not in {None, found}:
        raise stop(f"the credentials are of account {found}, the file is for {meant}", REFUSED)


def _delete(account: Account, resources: list[Resource]) -> None:
    if not account.stacks():
        err.print("none of its stacks exists")
        return
    progress = Progress(err)
    if _is_guarded(account.deployment):
        with progress.phase("lift the protection of stacks and load balancers"):
            lift_protection(account, resources)
    with progress.phase("empty the buckets of access logs"):
        empty_log_buckets(account, resources)
    with TemporaryDirectory(prefix="voice-teardown-") as home, progress.phase("cdk destroy --all"):
        operator = OperatorsAws(account.caller["Account"], account.region)
        cdk = Cdk(operator, account.deployment, Path(home))
        cdk.take(Path(synthesize(account.deployment, Path(home) / "cdk.out").directory))
        cdk.on_line = progress.detail
        cdk.destroy()


def _left(account: Account, planned: Plan, resources: list[Resource], report: dict[str, Any], *, as_json: bool) -> bool:
    expected: list[Left] = []
    unexpected: list[Left] = []
    for left in remains(account):
        (expected if is_expected(left, resources, planned.kept_kinds) else unexpected).append(left)
    report["left"] = {"as_announced": expected, "behind": unexpected}
    if not as_json:
        print_left(expected, unexpected)
    return not unexpected
