"""`voice teardown`: delete a deployment, and list the remaining resources."""

from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.deletion import DeletionError, delete_stacks, find_exporting_stacks, sort_stacks_for_deletion
from voice_ops.aws.refusals import AWS_ERRORS, explain_error, report_aws_error
from voice_ops.cost.command import load_prices
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import create_exit, err, out, print_json
from voice_ops.progress import Progress
from voice_ops.synthesis import synthesize, synthesize_templates
from voice_ops.teardown.azure import plan_azure_teardown
from voice_ops.teardown.external_resources import (
    cancel_rollout,
    delete_log_groups,
    find_machine_images,
    terminate_job_hosts,
)
from voice_ops.teardown.plan import ResourceSizes, TeardownPlan, plan_teardown
from voice_ops.teardown.remaining_resources import (
    RemainingResource,
    find_earlier_retained_resources,
    find_remaining_resources,
    is_expected,
)
from voice_ops.teardown.removal import (
    OperatorAccount,
    Resource,
    disable_deletion_protection,
    empty_log_buckets,
    list_existing_resources,
    measure_stored_sizes,
)
from voice_ops.teardown.report import print_azure_commands, print_remaining_resources, print_teardown_plan
from voice_sandbox.azure.errors import EngineError
from voice_sandbox.rehearsals.cdk import Cdk, CdkError

NAME_HELP = "Name of the deployment as a confirmation, required for production and protected deployments."
YES_HELP = "Skip the confirmation."
DRY_RUN_HELP = "Show the resources to delete and to retain, without deleting them."


def teardown(
    file: DeploymentFileArgument,
    *,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help=NAME_HELP)] = None,
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN_HELP)] = False,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete the stacks of a deployment, and list the resources that remain.

    Shows the resources to delete and to retain, and the cost of the latter. `cdk destroy` deletes the AWS section and
    its access logs; all regions of the file are then searched for remaining resources. For the Azure section it prints
    the Pulumi commands in order. Exits with 1 if unexpected resources remain.

    Example: voice teardown deployments/sandbox.yaml --dry-run
    """
    deployment = load_region_deployment(file, region)
    if not dry_run:
        check_name_confirmation(deployment, name)
    report: dict[str, Any] = {"dry_run": dry_run}
    is_removed = True
    try:
        if deployment.aws_section:
            is_removed = tear_down_aws(deployment, report, dry_run=dry_run, confirm=not yes, as_json=as_json)
        if deployment.azure_section:
            report["azure"] = order = plan_azure_teardown(deployment)
            if not as_json:
                print_azure_commands(order)
            is_removed = is_removed and dry_run
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    except (CdkError, DeletionError, EngineError) as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        text = "interrupted: deletions that were started may still complete; run the command again"
        raise create_exit(text, INTERRUPTED) from None
    if as_json:
        print_json(report, deployment.name)
    if not is_removed:
        raise typer.Exit(FAILED)


def needs_name_confirmation(deployment: Deployment) -> bool:
    """Return True if a teardown must be confirmed with the name of the deployment."""
    protected = deployment.aws_section and deployment.aws_section.deletion_protection
    return deployment.environment is Environment.PRODUCTION or bool(protected)


def check_name_confirmation(deployment: Deployment, name: str | None) -> None:
    """Exit if the confirmation by name is missing or has another name."""
    if needs_name_confirmation(deployment) and name != deployment.name:
        name_note = "" if name is None else f", not {name}"
        reason = "production" if deployment.environment is Environment.PRODUCTION else "protected"
        raise create_exit(
            f"{deployment.name} is {reason}: confirm with --name {deployment.name}{name_note}", INVALID_INPUT
        )
    if name not in {None, deployment.name}:
        raise create_exit(f"the deployment of the file is {deployment.name}, not {name}", INVALID_INPUT)


def tear_down_aws(
    deployment: Deployment, report: dict[str, Any], *, dry_run: bool, confirm: bool, as_json: bool
) -> bool:
    """Tear down the AWS section, or show the plan for a dry run.

    Args:
        report: Dictionary to which the plan and the remaining resources are added.

    Returns:
        Whether no unexpected resources remain.
    """
    defined = synthesize_templates(deployment)
    account: Account | None = None
    live: dict[str, dict[str, Any]] = {}
    resources: list[Resource] = []
    stored: ResourceSizes = {}
    try:
        signed_in = Account(deployment, defined, create_deployment_session(deployment))
        _require_same_account(signed_in)
        live = signed_in.fetch_live_templates()
        resources = list_existing_resources(signed_in, live)
        stored = measure_stored_sizes(signed_in, resources)
        account = signed_in
    except AWS_ERRORS as error:
        if not dry_run:
            raise
        result = explain_error(error).result
        err.print(f"no account was checked, so this is what the file creates: {result}", soft_wrap=True)
    planned = plan_teardown((live if account else None) or defined, deployment.aws, load_prices(), stored)
    if account:
        planned = replace(planned, kept=(*planned.kept, *find_machine_images(account)))
    removed_plan = plan_teardown(
        {stack: each for stack, each in defined.items() if stack not in live}, deployment.aws, load_prices()
    )
    number = account.caller_identity["Account"] if account else None
    report["aws"] = {"account": number, "deployed": bool(account and live), **vars(planned)}
    report["aws"] |= {"kept_usd_per_month": planned.usd_per_month}
    if not as_json:
        out.print(f"AWS account {number}, {deployment.aws.region}" if number else "AWS")
        print_teardown_plan(planned)
    if dry_run or account is None:
        return True
    if confirm and not needs_name_confirmation(deployment):
        typer.confirm(f"Delete the stacks of {deployment.name} in account {number}?", abort=True, err=True)
    earlier = find_earlier_retained_resources(account, resources, planned.retained_kinds)
    _delete_deployment(account, resources)
    delete_log_groups(account, {**defined, **live})
    return _report_remaining_resources(account, removed_plan, resources, report, earlier=earlier, as_json=as_json)


def _require_same_account(account: Account) -> None:
    result, expected_account = account.caller_identity["Account"], account.deployment.aws.account
    if expected_account not in {None, result}:
        raise create_exit(
            f"the credentials are for account {result}, but the file is for {expected_account}", INVALID_INPUT
        )


def _delete_deployment(account: Account, resources: list[Resource]) -> None:
    cancel_rollout(account, lambda line: err.print(line, soft_wrap=True))
    if not account.fetch_stack_statuses():
        err.print("none of its stacks exist")
        return
    progress = Progress(err)
    with progress.phase("terminate the hosts of jobs"):
        terminate_job_hosts(account, progress.show_detail)
    if needs_name_confirmation(account.deployment):
        with progress.phase("disable the protection of stacks and load balancers"):
            disable_deletion_protection(account, account.fetch_stack_statuses(), resources)
    with progress.phase("empty the buckets of access logs"):
        empty_log_buckets(account, resources)
    if first := _find_removed_stacks(account):
        with progress.phase("delete the stacks removed from the file"):
            delete_stacks(account.session.client("cloudformation"), first, progress.show_detail)
    with TemporaryDirectory(prefix="voice-teardown-") as home, progress.phase("cdk destroy --all"):
        operator = OperatorAccount(account.caller_identity["Account"], account.region)
        cdk = Cdk(operator, account.deployment, Path(home))
        cdk.use_assembly(Path(synthesize(account.deployment, Path(home) / "cdk.out").directory))
        cdk.on_line = progress.show_detail
        cdk.destroy()


def _find_removed_stacks(account: Account) -> tuple[str, ...]:
    """Return the stacks that were removed from the file and the stacks that import from them, in deletion order.

    `cdk destroy` only deletes the stacks of the file.
    """
    live = account.fetch_live_templates()
    stacks = {stack for stack in live if stack not in account.templates}
    while importers_left := {
        stack for stack in live.keys() - stacks if find_exporting_stacks(live[stack], live) & stacks
    }:
        stacks |= importers_left
    return sort_stacks_for_deletion(sorted(stacks), live)


def _report_remaining_resources(
    account: Account,
    removed_plan: TeardownPlan,
    resources: list[Resource],
    report: dict[str, Any],
    *,
    earlier: Container[RemainingResource],
    as_json: bool,
) -> bool:
    expected: list[RemainingResource] = []
    unexpected: list[RemainingResource] = []
    for resource in find_remaining_resources(account):
        is_kept = resource in earlier or is_expected(resource, resources, removed_plan.retained_kinds)
        (expected if is_kept else unexpected).append(resource)
    report["left"] = {"as_announced": expected, "behind": unexpected}
    if not as_json:
        print_remaining_resources(expected, unexpected)
    return not unexpected
