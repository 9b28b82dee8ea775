"""`voice prune`: drain and delete parts that were removed from the deployment file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from voice_blueprint.aws import names
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.deletion import DeletionError, delete_stacks
from voice_ops.aws.refusals import AWS_ERRORS, report_aws_error
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.findings import load_checked_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption
from voice_ops.output import create_exit, create_table, err, out, print_json
from voice_ops.progress import print_heartbeats
from voice_ops.prune.drain import DrainError, drain_removed_stacks
from voice_ops.prune.removals import Removal, find_capacity_warnings, find_removals
from voice_ops.synthesis import synthesize, synthesize_templates
from voice_ops.teardown.command import (
    DRY_RUN_HELP,
    NAME_HELP,
    YES_HELP,
    check_name_confirmation,
    needs_name_confirmation,
)
from voice_ops.teardown.external_resources import cancel_rollout, delete_log_groups, terminate_job_hosts
from voice_ops.teardown.removal import (
    OperatorAccount,
    Resource,
    disable_deletion_protection,
    empty_log_buckets,
    list_existing_resources,
)
from voice_sandbox.rehearsals.cdk import Cdk, CdkError


def prune(
    file: DeploymentFileArgument,
    *,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help=NAME_HELP)] = None,
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN_HELP)] = False,
    as_json: JsonOption = False,
) -> None:
    """Drain and delete the stacks of fleets, agents and regions that were removed from a file.

    A deploy does not delete these stacks, and their hosts continue to serve calls. The command finds them by their tags
    in all enabled regions, drains hosts and tasks, deletes the stacks, and then deploys the alarms. Exits with 1 if the
    remaining stacks have too little capacity, or if a host does not drain in time. An interrupted run continues when
    the command is run again.

    Example: voice prune deployments/production-us-east-1.yaml --dry-run
    """
    first, *_ = regions = load_checked_deployment(file).split_by_region()
    if first.aws_section is None:
        raise create_exit(
            f"{file}: has no section `aws`; on Azure `pulumi up` deletes the resources that the file no longer defines",
            INVALID_INPUT,
        )
    if not dry_run:
        check_name_confirmation(first, name)
    try:
        result = find_removals(
            [Account(each, synthesize_templates(each), create_deployment_session(each)) for each in regions]
        )
        _print_removal(result, first.name, as_json=as_json)
        if missing := [text for each in result if not each.is_whole_region for text in find_capacity_warnings(each)]:
            raise create_exit("\n".join(missing), FAILED)
        if dry_run or not result:
            return
        if not yes and not needs_name_confirmation(first) and (stacks := sum(len(each.stacks) for each in result)):
            typer.confirm(f"Drain and delete {stacks} stacks of {first.name}?", abort=True, err=True)
        for each in result:
            prune_region(each, lambda line: err.print(line, soft_wrap=True))
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    except (CdkError, DeletionError, DrainError) as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: draining continues; run the command again", INTERRUPTED) from None


def prune_region(removal: Removal, report: Callable[[str], None]) -> None:
    """Drain and delete the removed stacks in a region, and deploy the alarms for the remaining stacks.

    Raises:
        CdkError: A stack of the file that imports from a removed stack could not be deployed.
        DeletionError: A stack could not be deleted.
        DrainError: Hosts or tasks did not drain in time.
    """
    account = removal.account
    templates = {stack: removal.deployed_templates[stack] for stack in removal.stacks}
    with print_heartbeats(err, f"prune {account.region}"):
        if removal.is_whole_region:
            cancel_rollout(account, report)
        drain_removed_stacks(removal, report)
        if removal.is_whole_region:
            terminate_job_hosts(account, report)
        resources = list_existing_resources(account, templates)
        disable_deletion_protection(account, removal.stacks, resources)
        empty_log_buckets(account, resources)
        importing_stacks = removal.find_importing_stacks()
        if importing_stacks:
            _deploy_stacks(account, importing_stacks, report)
        delete_stacks(account.session.client("cloudformation"), removal.stacks, report)
        delete_log_groups(account, templates)
        observability_stack = names.build_stack_name(account.deployment, "observability")
        if (
            observability_stack in removal.deployed_templates
            and observability_stack in account.templates
            and observability_stack not in importing_stacks
        ):
            _deploy_stacks(account, [observability_stack], report)
    _print_retained_resources(resources, report)


def _deploy_stacks(account: Account, stacks: Sequence[str], report: Callable[[str], None]) -> None:
    with TemporaryDirectory(prefix="voice-prune-") as work_folder:
        cdk = Cdk(
            OperatorAccount(account.caller_identity["Account"], account.region), account.deployment, Path(work_folder)
        )
        cdk.use_assembly(Path(synthesize(account.deployment, Path(work_folder) / "cdk.out").directory))
        for stack in stacks:
            report(f"deploy {stack}, without what left")
            cdk.deploy_only(stack)


def _print_retained_resources(resources: Sequence[Resource], report: Callable[[str], None]) -> None:
    for each in resources:
        if each.is_retained:
            report(f"kept by its deletion policy: {each.kind} {each.physical_id}")


def _print_removal(removal: list[Removal], name: str, *, as_json: bool) -> None:
    rows = [
        {"region": each.account.region, "stack": stack, "hosts": count}
        for each in removal
        for stack, count in each.count_hosts().items()
    ]
    if as_json:
        print_json({"leaving": rows}, name)
    elif not rows:
        out.print(
            "no stack was removed from the file"
            + (", but alarms still monitor stacks that were removed before" if removal else "")
        )
    else:
        table = create_table("stacks that the file no longer defines", ["region", "stack"], ["hosts or tasks"])
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        out.print(table)
