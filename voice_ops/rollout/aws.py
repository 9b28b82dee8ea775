"""Shows the hosts that a deploy on AWS would replace, and deploys with monitoring."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.refusals import AWS_ERRORS, report_aws_error
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.output import create_exit, create_table, err, out, print_json
from voice_ops.progress import print_heartbeats
from voice_ops.rollout.follow import FailedProbe, MultiStackDeploy, find_newest_refresh_ids, follow_deploy
from voice_ops.rollout.plan import GroupRollout, find_missing_artifacts, find_quota_shortages, plan_rollouts
from voice_ops.synthesis import synthesize, synthesize_templates
from voice_ops.teardown.removal import OperatorAccount
from voice_sandbox.rehearsals.cdk import Cdk, CdkError


@dataclass(frozen=True)
class ProbeOptions:
    """Options of a test call that is made before a deploy and after each replacement of hosts.

    Attributes:
        url: URL of the session API.
        auth: Authorizer of the session API, as in `voice call`.
        api_key_env: Environment variable with the API's key or token.
        recording: Recording that is streamed.
        transcript: Text of the recording.
    """

    url: str | None = None
    auth: str | None = None
    api_key_env: str | None = None
    recording: Path | None = None
    transcript: Path | None = None


def roll_out_on_aws(regions: Sequence[Deployment], probe: ProbeOptions, *, deploy: bool, as_json: bool) -> None:
    """Show the hosts that a deploy would replace in each region, and optionally deploy.

    Raises:
        typer.Exit: A quota is too small, artifacts are missing, or the deploy fails or is rolled back.
    """
    finished: list[str] = []
    try:
        accounts = [Account(each, synthesize_templates(each), create_deployment_session(each)) for each in regions]
        plans = [(account, plan_rollouts(account)) for account in accounts]
        _print_plans(plans, regions[0].name, as_json=as_json)
        for account, result in plans if deploy else ():
            problem = result and deploy_and_monitor(account, result, create_probe(*vars(probe).values()))
            if problem:
                raise create_exit(f"{''.join(finished)}{problem}", FAILED)
            finished.append(f"{account.region} is rolled out; ")
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    except CdkError as error:
        raise create_exit("".join(finished) + str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit(
            "interrupted: the update continues; `aws cloudformation cancel-update-stack` cancels it", INTERRUPTED
        ) from None


def _print_plans(plans: list[tuple[Account, list[GroupRollout]]], name: str, *, as_json: bool) -> None:
    """Print the replacements in each region. Exit if a quota is too small or artifacts are missing."""
    unused_stacks = {account.region: sorted(account.fetch_removed_stack_statuses()) for account, _ in plans}
    if as_json:
        rows = [roll for _, result in plans for roll in result]
        print_json({"rolls": rows, "left": [stack for stacks in unused_stacks.values() for stack in stacks]}, name)
    for account, result in plans:
        if not as_json:
            _print_rollouts(result)
            if stacks := unused_stacks[account.region]:
                out.print(
                    f"no longer in the file, but in service until `voice prune`: {', '.join(stacks)}", soft_wrap=True
                )
        if short := "\n".join([*find_quota_shortages(result), *find_missing_artifacts(account, result)]):
            raise create_exit(short, FAILED)


def _print_rollouts(rollouts: list[GroupRollout]) -> None:
    if not rollouts:
        out.print("a deploy replaces no host")
        return
    table = create_table(
        "Hosts that a deploy replaces, in its order", ["group"], ["hosts", "at a time", "at most"], "for"
    )
    for roll in rollouts:
        table.add_row(
            roll.group, str(roll.hosts), str(roll.at_a_time), f"{roll.longest_s / 3600:.1f} h", ", ".join(roll.changed)
        )
    out.print(table)
    for family in dict.fromkeys(roll.quota for roll in rollouts):
        # Stacks are rolled out one at a time, and so are the groups of each stack.
        family_rolls = [roll for roll in rollouts if roll.quota == family]
        available = min((roll.room_vcpus for roll in family_rolls if roll.room_vcpus is not None), default=None)
        unused_stacks = (
            "a quota that Service Quotas does not report"
            if available is None
            else f"{max(available, 0)} available in the quota"
        )
        max_additional = max(roll.more_vcpus for roll in family_rolls)
        out.print(f"{family}: {max_additional} additional vCPU, of {unused_stacks}; scaling adds to them")
    out.print(
        f"at most {sum(roll.longest_s for roll in rollouts) / 3600:.1f} h in total; scaling continues during the "
        f"rollout"
    )
    out.print(f"rolled back by {', '.join(dict.fromkeys(name for roll in rollouts for name in roll.guards))}")


def create_probe(
    url: str | None, auth: str | None, api_key_env: str | None, recording: Path | None, transcript: Path | None
) -> Callable[[], str]:
    """Make a first test call, and return a function that makes another call and compares it with the first.

    The function returns a reason if the new call is worse or calls fail repeatedly, and otherwise an empty string.
    """
    if url is None:
        return lambda: ""
    if recording is None or transcript is None:
        raise create_exit("--probe needs --recording and --transcript, a recording and its words", INVALID_INPUT)
    # Imported here, since a rollout without probe makes no calls.
    from voice_ops.call.access import AuthorizerType, create_header_provider, read_secret  # noqa: PLC0415
    from voice_ops.call.session import CallError  # noqa: PLC0415
    from voice_ops.rollout.probe import RolloutProbe, measure_call  # noqa: PLC0415

    try:
        text = transcript.read_text(encoding="utf-8")
        headers_for = create_header_provider(AuthorizerType(auth) if auth else None, read_secret(api_key_env), url)
        measure = partial(measure_call, url, headers_for, recording, text)
        before = measure()
    except (CallError, OSError, ValueError) as error:  # CredentialsError and RecordingError are ValueErrors
        raise create_exit(f"the probe fails before the rollout: {error}", FAILED) from None
    err.print(
        f"before: {before.word_error_rate:.0%} of the words wrong, finals after {before.max_final_latency_s:.2f} s"
    )
    return RolloutProbe(measure, before, partial(err.print, soft_wrap=True)).find_regression


def deploy_and_monitor(account: Account, rollouts: list[GroupRollout], probe: Callable[[], str]) -> str:
    """Deploy the stacks whose hosts are replaced, and monitor the rollout.

    Returns:
        A description of the failure and of the stacks that keep the new release, which is empty if the rollout is
        complete.

    Raises:
        CdkError: A deploy failed. If an alarm rolled the deploy back, the message contains the alarm.
    """
    earlier_ids, deploy, deployed = find_newest_refresh_ids(account, rollouts), MultiStackDeploy(), list[str]()
    with TemporaryDirectory(prefix="voice-rollout-") as home:
        cdk = Cdk(OperatorAccount(account.caller_identity["Account"], account.region), account.deployment, Path(home))
        cdk.use_assembly(Path(synthesize(account.deployment, Path(home) / "cdk.out").directory))

        def run() -> None:
            try:
                for stack in dict.fromkeys(roll.stack for roll in rollouts):
                    if deploy.stopped.is_set():
                        break
                    deploy.stack = stack
                    cdk.deploy_only(stack)
                    deploy.stack = ""
                    deployed.append(stack)
                deploy.future.set_result(None)
            except BaseException as error:  # noqa: BLE001  passed to the thread that waits
                deploy.future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        with print_heartbeats(err, "deploy"):
            failed_probe = follow_deploy(
                account,
                rollouts,
                deploy,
                earlier_ids=earlier_ids,
                report=lambda line: err.print(line, soft_wrap=True),
                probe=probe,
            )
        try:
            deploy.future.result()
        except CdkError:
            # A deploy that was cancelled fails as well; in other cases, the error contains the alarm.
            if not (failed_probe and failed_probe.cancelled):
                raise
    return _describe_probe_failure(failed_probe, deployed) if failed_probe else ""


def _describe_probe_failure(failed_probe: FailedProbe, deployed: list[str]) -> str:
    if failed_probe.cancelled:
        result = f"the rollout was rolled back: {failed_probe.problem}"
    else:
        result = f"the probe failed: {failed_probe.problem}; no update was in progress that could be cancelled"
    if deployed:
        result += (
            f"; these stacks keep the new release: {', '.join(deployed)}; deploy the previous revision of the file "
            "to restore the previous one"
        )
    return result
