"""`voice rollout`: what a deploy would replace; with --deploy, a deploy that is watched."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.markup import escape

from ops.aws.account import Account, sign_in
from ops.aws.refusals import ERRORS, failed
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.findings import load_regions
from ops.options import DeploymentFile, Json, Region
from ops.output import empty_table, err, out, print_json, stop
from ops.progress import heartbeat
from ops.rollout.follow import follow, newest_ids
from ops.rollout.plan import Roll, rolls, shortages, unprepared
from ops.synthesis import synthesize, templates
from ops.teardown.removal import OperatorsAws
from sandbox.aws.cdk import Cdk, CdkError


def rollout(
    file: DeploymentFile,
    *,
    deploy: Annotated[bool, typer.Option("--deploy", help="Deploy the stacks of these groups, and watch.")] = False,
    probe: Annotated[
        str | None,
        typer.Option("--probe", metavar="URL", help="Session API to call, before and whenever hosts were replaced."),
    ] = None,
    auth: Annotated[str | None, typer.Option(help="Authorizer of that API, as in `voice call`.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Variable that holds the API's key or token.")
    ] = None,
    recording: Annotated[Path | None, typer.Option(help="Recording for the probe: PCM.")] = None,
    said: Annotated[Path | None, typer.Option(help="Text of the words that are spoken in it.")] = None,
    region: Region = None,
    as_json: Json = False,
) -> None:
    """Show which hosts a deploy would replace: order, duration, additional vCPUs, alarms that take it back.

    With --deploy it deploys those stacks and follows their instance refreshes. An alarm fails one, and CloudFormation
    goes back; with --probe so does a call of which more words are wrong, or whose words come later, than before. Exits
    with 1 when the rollout was taken back, and before anything is deployed when the account's quota has no room for it
    or the artifacts of a fleet are not in the bucket. Of a file with several regions one follows the other, in the
    file's order; the first that is taken back ends it.

    Example: voice rollout deployments/production-us-east-1.yaml --deploy
    """
    first, *others = regions = load_regions(file, region)
    if first.aws_half is None:
        raise stop(f"{file}: has no section `aws`; the cluster's pods roll with `pulumi up`", REFUSED)
    if probe and others:
        raise stop("--probe calls one region: name it with --region, and roll out one after the other", REFUSED)
    done: list[str] = []
    try:
        accounts = [Account(each, templates(each), sign_in(each)) for each in regions]
        planned = [(account, rolls(account)) for account in accounts]
        _tell(planned, first.name, as_json=as_json)
        for account, found in planned if deploy else ():
            wrong = found and roll_out(account, found, prober(probe, auth, api_key_env, recording, said))
            if wrong:
                raise stop(f"{''.join(done)}the rollout was taken back: {wrong}", FAILED)
            done.append(f"{account.region} is rolled out; ")
    except ERRORS as error:
        raise failed(error) from None
    except CdkError as error:
        raise stop("".join(done) + str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop(
            "interrupted: the update goes on; `aws cloudformation cancel-update-stack` ends it", INTERRUPTED
        ) from None


def _tell(planned: list[tuple[Account, list[Roll]]], name: str, *, as_json: bool) -> None:
    """Print what each region's deploy replaces, and end the command where one of them has no room for it."""
    if as_json:
        print_json({"rolls": [roll for _, found in planned for roll in found]}, name)
    for account, found in planned:
        if not as_json:
            _show(found)
        if short := "\n".join([*shortages(found), *unprepared(account, found)]):
            raise stop(short, FAILED)


def _show(found: list[Roll]) -> None:
    if not found:
        out.print("a deploy replaces no host")
        return
    table = empty_table(
        "Hosts that a deploy replaces, in its order", ["group"], ["hosts", "at a time", "at most"], "for"
    )
    for roll in found:
        table.add_row(
            roll.group, str(roll.hosts), str(roll.at_a_time), f"{roll.longest_s / 3600:.1f} h", ", ".join(roll.changed)
        )
    out.print(table)
    for family in dict.fromkeys(roll.quota for roll in found):
        # Groups of one stack, and stacks, roll one after the other.
        of_family = [roll for roll in found if roll.quota == family]
        room = min((roll.room_vcpus for roll in of_family if roll.room_vcpus is not None), default=None)
        left = "a quota that Service Quotas does not tell" if room is None else f"{max(room, 0)} that the quota leaves"
        most = max(roll.more_vcpus for roll in of_family)
        out.print(f"{family}: {most} vCPU more than run now, of {left}; scaling adds to them")
    out.print(f"in all at most {sum(roll.longest_s for roll in found) / 3600:.1f} h; scaling goes on meanwhile")
    out.print(f"taken back by {escape(', '.join(dict.fromkeys(name for roll in found for name in roll.guards)))}")


def prober(
    url: str | None, auth: str | None, api_key_env: str | None, recording: Path | None, said: Path | None
) -> Callable[[], str]:
    """Measure what callers have now, and return what compares with it."""
    if url is None:
        return lambda: ""
    if recording is None or said is None:
        raise stop("--probe needs --recording and --said, a recording and its words", REFUSED)
    # Imported here: without a probe no call is made.
    from ops.call.access import Auth, access, secret_of  # noqa: PLC0415
    from ops.call.session import CallError  # noqa: PLC0415
    from ops.rollout.probe import measure  # noqa: PLC0415

    try:
        text = said.read_text(encoding="utf-8")
        headers_of = access(Auth(auth) if auth else None, secret_of(api_key_env), url)
        before = measure(url, headers_of, recording, text)
    except (CallError, OSError, ValueError) as error:  # AccessError and RecordingError are values that are wrong
        raise stop(f"the probe fails before the rollout: {error}", FAILED) from None
    err.print(f"before: {before.words_wrong:.0%} of the words wrong, finals after {before.final_s:.2f} s")

    def compare() -> str:
        try:
            return measure(url, headers_of, recording, text).is_worse_than(before)
        except CallError as error:
            return str(error)

    return compare


def roll_out(account: Account, found: list[Roll], probe: Callable[[], str]) -> str:
    """Deploy the stacks of these groups, and watch.

    Returns:
        Why the probe took the rollout back, or nothing.

    Raises:
        CdkError: A deploy failed; one that an alarm has taken back names it.
    """
    known, deploying = newest_ids(account, found), Future[None]()
    with TemporaryDirectory(prefix="voice-rollout-") as home:
        cdk = Cdk(OperatorsAws(account.caller["Account"], account.region), account.deployment, Path(home))
        cdk.take(Path(synthesize(account.deployment, Path(home) / "cdk.out").directory))

        def run() -> None:
            try:
                for stack in dict.fromkeys(roll.stack for roll in found):
                    cdk.deploy_only(stack)
                deploying.set_result(None)
            except BaseException as error:  # noqa: BLE001  told to whoever waits
                deploying.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        with heartbeat(err, "deploy"):
            wrong = follow(
                account,
                found,
                deploying,
                known=known,
                tell=lambda line: err.print(escape(line), soft_wrap=True),
                probe=probe,
            )
        try:
            deploying.result()
        except CdkError:
            # Taken back by us, it fails too; by an alarm, it says which.
            if not wrong:
                raise
    return wrong
