"""`voice teardown`: take a deployment down, and say what is left."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from rich.markup import escape

from blueprint.file.model.deployment import Deployment, Environment
from ops.cost.command import price_list
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.findings import load_checked
from ops.options import DeploymentFile, Json
from ops.output import err, out, print_json, stop
from ops.preflight.aws.refusals import explain
from ops.progress import Progress
from ops.status.deployed import Deployed
from ops.synthesis import templates
from ops.teardown.azure import AzureOrder, azure_order
from ops.teardown.plan import Plan, plan
from ops.teardown.remains import Left, is_expected, remains
from ops.teardown.removal import OperatorsAws, Resource, empty_log_buckets, existing, lift_protection
from ops.teardown.report import left_as_dict, plan_as_dict, print_azure, print_left, print_plan
from ops.teardown.sizes import sizes
from sandbox.aws.cdk import Cdk, CdkError
from sandbox.azure.errors import EngineError

NAME_HELP = "Name of the deployment, typed back; production is torn down with it only."
YES_HELP = "Do not ask, for pipelines."
DRY_RUN_HELP = "Show what would be deleted and kept; delete nothing."


def teardown(
    file: DeploymentFile,
    *,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help=NAME_HELP)] = None,
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN_HELP)] = False,
    as_json: Json = False,
) -> None:
    """Show what goes, what stays and what that costs; delete the stacks; say what is left.

    What is left is looked for in every region used. The AWS half goes with `cdk destroy`, access logs included. For
    the Azure half the order is printed, which the Pulumi CLI carries out. Exits with 1 when something is left that
    should not be.

    Example: voice teardown deployments/sandbox.yaml --dry-run
    """
    deployment = load_checked(file)
    if not dry_run:
        _refuse_production(deployment, name)
    report: dict[str, Any] = {"deployment": deployment.name, "dry_run": dry_run}
    gone = True
    try:
        if deployment.aws_half:
            gone = _aws(deployment, report, dry_run=dry_run, ask=not yes, as_json=as_json)
        if deployment.azure_half:
            order = azure_order(deployment)
            _show_azure(order, report, as_json=as_json)
            gone = gone and dry_run
    except (BotoCoreError, ClientError) as error:
        refusal = explain(error)
        raise stop(f"{refusal.found}; {refusal.remedy}", FAILED) from None
    except (CdkError, EngineError) as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        text = "interrupted: stacks that were being deleted may still go; run the command again"
        raise stop(text, INTERRUPTED) from None
    if as_json:
        print_json(report)
    if not gone:
        raise typer.Exit(FAILED)


def _refuse_production(deployment: Deployment, name: str | None) -> None:
    if deployment.environment is Environment.PRODUCTION and name != deployment.name:
        typed = "" if name is None else f", not {name}"
        raise stop(f"{deployment.name} is production: type its name back, --name {deployment.name}{typed}", REFUSED)
    if name not in {None, deployment.name}:
        raise stop(f"the file is {deployment.name}, not {name}", REFUSED)


def _aws(deployment: Deployment, report: dict[str, Any], *, dry_run: bool, ask: bool, as_json: bool) -> bool:
    """Tear the AWS half down, or show how; return whether nothing unexpected is left."""
    deployed = Deployed(deployment, templates(deployment), boto3.Session(region_name=deployment.aws.region))
    try:
        account = _account(deployed)
        live = deployed.live_templates()
        resources = existing(deployed, live)
        stored = sizes(deployed, resources)
    except (BotoCoreError, ClientError) as error:
        if not dry_run:
            raise
        account, live, resources, stored = None, {}, [], {}
        found = escape(explain(error).found)
        err.print(f"no account was asked, so this is what the file makes: {found}", soft_wrap=True)
    planned = plan(live or deployed.templates, deployment.aws, price_list(), stored)
    report["aws"] = {"account": account, "deployed": bool(live), **plan_as_dict(planned)}
    if not as_json:
        out.print(f"AWS account {account}, {deployment.aws.region}" if account else "AWS")
        print_plan(planned)
    if dry_run or account is None:
        return True
    if ask and deployment.environment is not Environment.PRODUCTION:
        typer.confirm(f"Delete the stacks of {deployment.name} in account {account}?", abort=True, err=True)
    _delete(deployed, account, resources)
    return _left(deployed, planned, resources, report, as_json=as_json)


def _account(deployed: Deployed) -> str:
    """Return the account of the credentials.

    Raises:
        NoCredentialsError: There are none.
    """
    if deployed.session.get_credentials() is None:
        raise NoCredentialsError
    account = deployed.session.client("sts").get_caller_identity()["Account"]
    meant = deployed.deployment.aws.account
    if meant not in {None, account}:
        raise stop(f"the credentials are of account {account}, the file is for {meant}", REFUSED)
    return account


def _delete(deployed: Deployed, account: str, resources: list[Resource]) -> None:
    if not deployed.stacks():
        err.print("none of its stacks exists")
        return
    progress = Progress(err)
    if deployed.deployment.environment is Environment.PRODUCTION:
        with progress.phase("lift the protection of stacks and load balancers"):
            lift_protection(deployed, resources)
    with progress.phase("empty the buckets of access logs"):
        empty_log_buckets(deployed, resources)
    with TemporaryDirectory(prefix="voice-teardown-") as home, progress.phase("cdk destroy --all"):
        cdk = Cdk(OperatorsAws(account, deployed.deployment.aws.region), deployed.deployment, Path(home))
        cdk.on_line = progress.detail
        cdk.destroy()


def _left(
    deployed: Deployed, planned: Plan, resources: list[Resource], report: dict[str, Any], *, as_json: bool
) -> bool:
    expected: list[Left] = []
    unexpected: list[Left] = []
    for left in remains(deployed):
        (expected if is_expected(left, resources, planned.kept_kinds) else unexpected).append(left)
    report["left"] = left_as_dict(expected, unexpected)
    if not as_json:
        print_left(expected, unexpected)
    return not unexpected


def _show_azure(order: AzureOrder, report: dict[str, Any], *, as_json: bool) -> None:
    report["azure"] = order.as_dict()
    if not as_json:
        print_azure(order)
