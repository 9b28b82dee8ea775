"""`voice restore`: what a restore of the state store would do; with --deploy, the restore."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.markup import escape

from blueprint.aws import names
from ops.aws.account import Account, sign_in
from ops.aws.refusals import ERRORS, failed
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.findings import load_region
from ops.options import DeploymentFile, Json, Region
from ops.output import empty_table, out, print_json, stop
from ops.restore.snapshots import Snapshot, SnapshotError, keep, live_group, snapshots, wanted
from ops.synthesis import synthesize, templates
from ops.teardown.removal import OperatorsAws
from sandbox.aws.cdk import Cdk, CdkError


def restore(
    file: DeploymentFile,
    *,
    deploy: Annotated[bool, typer.Option("--deploy", help="Restore the store from what the file names.")] = False,
    take: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take a snapshot of the store as it is now, and wait for it.")
    ] = None,
    of: Annotated[
        str | None, typer.Option(metavar="SNAPSHOT", help="With --take: copy this one, such as an automatic one.")
    ] = None,
    region: Region = None,
    as_json: Json = False,
) -> None:
    """Show the state store's snapshots, and what a restore from the file's `state.restore_from` would do.

    With --deploy it restores: a new store is made beside the old one, programs follow to it within five minutes, and
    the old one goes, in production with a last snapshot. Run again, it does what is still to be done. With --take it
    makes a snapshot to restore from.

    Example: voice restore deployments/production-us-east-1.yaml --deploy
    """
    deployment = load_region(file, region)
    if deployment.aws_half is None:
        raise stop(f"{file}: has no section `aws`, and so no state store", REFUSED)
    if of and not take:
        raise stop("--of needs --take, the name of the copy", REFUSED)
    try:
        account = Account(deployment, templates(deployment), sign_in(deployment))
        if take:
            made = keep(account, take, of)
            out.print(f"{made.name} is {made.status}; `state.restore_from: {made.name}` restores from it")
            return
        _show(account, list(snapshots(account)), as_json=as_json)
        if deployment.aws.state.restore_from:
            _follow_the_file(account, deploy=deploy, tells=not as_json)
        elif deploy:
            raise stop(f"{file}: has no state.restore_from; name a snapshot there", REFUSED)
    except KeyError as error:
        raise stop(f"{deployment.name} has no state store yet: {error} is not deployed", FAILED) from None
    except ERRORS as error:
        raise failed(error) from None
    except (CdkError, SnapshotError) as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: run it again, it goes on where it was", INTERRUPTED) from None


def _follow_the_file(account: Account, *, deploy: bool, tells: bool) -> None:
    snapshot = wanted(account)
    if tells:
        _tell(account, snapshot)
    if deploy:
        restore_store(account)
        out.print(f"restored from {snapshot.name}; hosts find the store within five minutes", soft_wrap=True)


def _show(account: Account, found: list[Snapshot], *, as_json: bool) -> None:
    if as_json:
        print_json({"live": live_group(account), "snapshots": found}, account.deployment.name)
        return
    table = empty_table("snapshots of the state store", ["name", "of", "taken by", "Valkey", "status"], [], "at (UTC)")
    for each in found:
        taken = f"{each.taken:%Y-%m-%d %H:%M}" if each.taken else ""
        table.add_row(escape(each.name), each.group, each.source, each.version, each.status, taken)
    out.print(table)


def _tell(account: Account, snapshot: Snapshot) -> None:
    deployment, live = account.deployment, live_group(account)
    new, stack = names.state_group(deployment), names.stack(deployment, "state")
    if live == new:
        out.print(f"{new} is restored from {snapshot.name} already", soft_wrap=True)
        return
    (group,) = (
        each for each in account.templates[stack]["Resources"].values()
        if each["Type"] == "AWS::ElastiCache::ReplicationGroup"
    )  # fmt: skip
    last = (
        "after a last snapshot of it"
        if group["UpdateReplacePolicy"] == "Snapshot"
        else "and no snapshot of it is taken"
    )
    since = f"{snapshot.taken:%Y-%m-%d %H:%M} UTC" if snapshot.taken else "then"
    for number, step in enumerate(
        (
            f"{stack} makes {new} from {snapshot.name}, beside {live}",
            f"the parameter {names.state_host(deployment)} names it: hosts read that every five minutes",
            f"{live} is deleted, {last}; who is connected to it connects to the new one",
            "the gateway's tasks are replaced",
            f"{names.stack(deployment, 'observability')} watches the new nodes",
        ),
        1,
    ):
        out.print(f"  {number}. {step}", soft_wrap=True)
    out.print(f"  lost is what was written to {live} since {since}", soft_wrap=True)


def restore_store(account: Account) -> None:
    """Deploy what the file's snapshot changes, and have programs follow to the new store."""
    deployment = account.deployment
    with TemporaryDirectory(prefix="voice-restore-") as home:
        cdk = Cdk(OperatorsAws(account.caller["Account"], account.region), deployment, Path(home))
        cdk.take(Path(synthesize(deployment, Path(home) / "cdk.out").directory))
        cdk.deploy_only(names.stack(deployment, "state"))
        account.renew_gateway()
        if (watching := names.stack(deployment, "observability")) in account.stacks():
            cdk.deploy_only(watching)
