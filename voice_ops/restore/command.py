"""`voice restore`: list snapshots of the state store, create a snapshot, or restore the store."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.refusals import AWS_ERRORS, report_aws_error
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import create_exit, create_table, err, out, print_json
from voice_ops.restore.snapshots import (
    Snapshot,
    SnapshotError,
    create_snapshot,
    find_live_group_id,
    find_requested_snapshot,
    list_snapshots,
)
from voice_ops.synthesis import synthesize, synthesize_templates
from voice_ops.teardown.removal import OperatorAccount
from voice_sandbox.rehearsals.cdk import Cdk, CdkError


def restore(
    file: DeploymentFileArgument,
    *,
    deploy: Annotated[bool, typer.Option("--deploy", help="Restore the store from state.restore_from.")] = False,
    take: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take a snapshot of the store, and wait for it.")
    ] = None,
    source_snapshot: Annotated[
        str | None, typer.Option(metavar="SNAPSHOT", help="With --take: copy this snapshot, such as an automatic one.")
    ] = None,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the state store's snapshots, take one, or restore the store from one.

    Shows the effect of a restore from the file's `state.restore_from`. With --deploy it creates a new store next to the
    old one. Programs reconnect to the new store within five minutes. The old store is then deleted; in production a
    final snapshot is taken first. An interrupted restore continues when the command is run again.

    Example: voice restore deployments/production-us-east-1.yaml --deploy
    """
    deployment = load_region_deployment(file, region)
    if deployment.aws_section is None:
        raise create_exit(
            f"{file}: Azure Managed Redis keeps no snapshots here, so there is nothing to restore: its data expires "
            "with the sessions. `pulumi -C stacks/voice_stacks/azure/cluster up --policy-pack ../policy` creates "
            "a lost store, empty, again; callers then open new sessions",
            INVALID_INPUT,
        )
    if source_snapshot and not take:
        raise create_exit("--source-snapshot needs --take, the name of the copy", INVALID_INPUT)
    try:
        account = Account(deployment, synthesize_templates(deployment), create_deployment_session(deployment))
        if take:
            _print_snapshot(deployment, create_snapshot(account, take, source_snapshot), as_json=as_json)
            return
        _print_snapshots(account, list(list_snapshots(account)), as_json=as_json)
        if deployment.aws.state.restore_from:
            _recreate_store(account, deploy=deploy, is_verbose=not as_json)
        elif deploy:
            raise create_exit(f"{file}: has no state.restore_from; name a snapshot there", INVALID_INPUT)
    except KeyError as error:
        raise create_exit(f"{deployment.name} has no state store yet: {error} is not deployed", FAILED) from None
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    except (CdkError, SnapshotError) as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: run the command again to continue", INTERRUPTED) from None


def _recreate_store(account: Account, *, deploy: bool, is_verbose: bool) -> None:
    snapshot = find_requested_snapshot(account)
    if is_verbose:
        _print_restore_plan(account, snapshot)
    if deploy:
        restore_store(account)
        message = f"restored from {snapshot.name}; hosts find the store within five minutes"
        (out if is_verbose else err).print(message, soft_wrap=True)


def _print_snapshot(deployment: Deployment, snapshot: Snapshot, *, as_json: bool) -> None:
    if as_json:
        print_json({"taken": snapshot}, deployment.name)
    else:
        out.print(f"{snapshot.name} is {snapshot.status}; `state.restore_from: {snapshot.name}` restores from it")


def _print_snapshots(account: Account, snapshots: list[Snapshot], *, as_json: bool) -> None:
    if as_json:
        print_json({"live": find_live_group_id(account), "snapshots": snapshots}, account.deployment.name)
        return
    table = create_table("snapshots of the state store", ["name", "of", "taken by", "Valkey", "status"], [], "at (UTC)")
    for each in snapshots:
        created = f"{each.created_at:%Y-%m-%d %H:%M}" if each.created_at else ""
        table.add_row(each.name, each.group, each.source, each.version, each.status, created)
    out.print(table)


def _print_restore_plan(account: Account, snapshot: Snapshot) -> None:
    deployment, live = account.deployment, find_live_group_id(account)
    new, stack = names.build_state_group_id(deployment), names.build_stack_name(deployment, "state")
    if live == new:
        out.print(f"{new} is already restored from {snapshot.name}", soft_wrap=True)
        return
    (group,) = (
        each for each in account.templates[stack]["Resources"].values()
        if each["Type"] == "AWS::ElastiCache::ReplicationGroup"
    )  # fmt: skip
    last = "after a final snapshot" if group["UpdateReplacePolicy"] == "Snapshot" else "without a final snapshot"
    created = f"{snapshot.created_at:%Y-%m-%d %H:%M} UTC" if snapshot.created_at else "then"
    for number, step in enumerate(
        (
            f"{stack} creates {new} from {snapshot.name}, next to {live}",
            (
                f"the parameter {names.build_state_host_parameter_name(deployment)} is set to its address, "
                "which hosts read every five minutes"
            ),
            f"{live} is deleted {last}; its clients reconnect to the new one",
            "the gateway's tasks are replaced",
            f"{names.build_stack_name(deployment, 'observability')} watches the new nodes",
        ),
        1,
    ):
        out.print(f"  {number}. {step}", soft_wrap=True)
    out.print(f"  lost is what was written to {live} since {created}", soft_wrap=True)


def restore_store(account: Account) -> None:
    """Deploy the store that is restored from the snapshot in the file, and the services that connect to the store."""
    deployment = account.deployment
    with TemporaryDirectory(prefix="voice-restore-") as home:
        cdk = Cdk(OperatorAccount(account.caller_identity["Account"], account.region), deployment, Path(home))
        cdk.use_assembly(Path(synthesize(deployment, Path(home) / "cdk.out").directory))
        cdk.deploy_only(names.build_stack_name(deployment, "state"))
        account.redeploy_services()
        if (watching := names.build_stack_name(deployment, "observability")) in account.fetch_stack_statuses():
            cdk.deploy_only(watching)
