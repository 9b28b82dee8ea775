"""`voice drain`: drain one host without losing a call."""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.refusals import AWS_ERRORS, report_aws_error
from voice_ops.drain import hosts, kubernetes, tasks
from voice_ops.drain.hosts import Host, NotDrainableError
from voice_ops.drain.tasks import Task
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import create_exit, err, out, print_error, print_json
from voice_ops.progress import Progress, print_heartbeats

POLL_INTERVAL_S = 5.0
INSTANCE_ID_PATTERN = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")
HOST_HELP = "Instance of a VAD or ASR fleet, gateway task, AKS node or pod."
DrainTarget = TypeVar("DrainTarget", Host, Task)


def drain(
    file: DeploymentFileArgument,
    host: Annotated[str, typer.Argument(metavar="HOST", help=HOST_HELP)],
    *,
    replace_host: Annotated[bool, typer.Option("--replace", help="Launch a replacement host.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the actions without executing them.")] = False,
    print_only: Annotated[
        bool,
        typer.Option(
            "--print", help="For AKS: print the kubectl commands, which `voice` does not run, and exit with 0."
        ),
    ] = False,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drain a host: it finishes its sessions and is then terminated.

    New sessions are routed to other hosts at once. A lifecycle hook delays the termination while the host drains, and
    the command waits for it. A host that is already draining is only followed. Exits with 1 if the host does not
    terminate in time.

    Example: voice drain deployments/production-us-east-1.yaml i-0123456789abcdef0 --replace
    """
    deployment = load_region_deployment(file, region)
    is_aws = INSTANCE_ID_PATTERN.fullmatch(host) or tasks.TASK_ID_PATTERN.fullmatch(host)
    if is_aws and deployment.aws_section:
        _drain_on_aws(deployment, host, replace_host=replace_host, dry_run=dry_run, as_json=as_json)
    elif not is_aws and deployment.azure_section and kubernetes.POD_NAME_PATTERN.fullmatch(host):
        _drain_on_azure(deployment, host, print_only=print_only or dry_run, as_json=as_json)
    else:
        sections = [
            name for name, section in (("AWS", deployment.aws_section), ("Azure", deployment.azure_section)) if section
        ]
        raise create_exit(
            f"{host} is not a host of {deployment.name}, which is on {' and '.join(sections)}: specify an instance "
            "such as i-0123456789abcdef0, a task of 32 hexadecimal digits, or the name of an AKS node or pod",
            INVALID_INPUT,
        )


def _drain_on_azure(deployment: Deployment, host: str, *, print_only: bool, as_json: bool) -> None:
    order = kubernetes.build_drain_plan(deployment.azure, host)
    if as_json:
        print_json({"host": host, "what": order.description, "commands": order.commands}, deployment.name)
    else:
        err.print(f"{host}: {order.description}", soft_wrap=True)
        for command in order.commands:
            typer.echo(command)
    if not print_only:
        raise create_exit(
            "nothing was drained: `voice` does not run kubectl; run these commands yourself (--print only prints them)",
            FAILED,
        )


def _drain_on_aws(deployment: Deployment, host: str, *, replace_host: bool, dry_run: bool, as_json: bool) -> None:
    stacks: dict[str, dict[str, Any]] = {
        names.build_stack_name(deployment, "edge"): {}
    }  # other templates are not needed
    try:
        account = Account(deployment, stacks, create_deployment_session(deployment))
        if INSTANCE_ID_PATTERN.fullmatch(host):
            has_terminated = _drain_instance(account, host, replace_host=replace_host, dry_run=dry_run, as_json=as_json)
        else:
            has_terminated = _drain_task(account, host, dry_run=dry_run, as_json=as_json)
    except NotDrainableError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    except KeyboardInterrupt:
        raise create_exit(
            "interrupted: the host continues to drain; run the command again to follow it", INTERRUPTED
        ) from None
    if not has_terminated:
        raise typer.Exit(FAILED)


def _drain_instance(account: Account, instance: str, *, replace_host: bool, dry_run: bool, as_json: bool) -> bool:
    with print_heartbeats(err, f"find {instance}"):
        host = hosts.find_host(account, instance)
    if not as_json:
        out.print(f"{host.id}: {host.fleet} in {host.zone}, {host.state}; runs {', '.join(host.sessions)}")
        out.print(
            f"group {host.group}: {host.in_service} of {host.desired} desired hosts in service, minimum {host.low}"
        )
        out.print(
            f"it has {host.budget_s} s to finish its sessions; after {host.heartbeat_s} s without a heartbeat, the "
            f"hook {host.hook} terminates it"
        )
    hosts.check_group_minimum(host, replaced=replace_host)
    if not dry_run:
        if not host.is_terminating:
            hosts.terminate_host(account, host, replaced=replace_host)
        host = _wait_until_ended(host, partial(hosts.describe_host, account), hosts.TERMINATED_STATE)
    if as_json:
        print_json({"dry_run": dry_run, "host": host}, account.deployment.name)
    has_terminated = dry_run or host.state == hosts.TERMINATED_STATE
    if not has_terminated:
        print_error(_format_timeout_message(host))
    return has_terminated


def _drain_task(account: Account, name: str, *, dry_run: bool, as_json: bool) -> bool:
    with print_heartbeats(err, f"find {name}"):
        task = tasks.find_task(account, name)
    if not as_json:
        out.print(f"{task.id}: gateway in cluster {task.cluster}, {task.state}; its service starts a replacement")
        out.print(f"callers have {task.budget_s} s to finish; then they are asked to reconnect to another task")
    if not dry_run:
        if not task.leaves:
            tasks.stop_task(account, task)
        task = _wait_until_ended(task, partial(tasks.describe_task, account), tasks.STOPPED_STATUS)
    if as_json:
        print_json({"dry_run": dry_run, "host": task}, account.deployment.name)
    has_terminated = dry_run or task.state == tasks.STOPPED_STATUS
    if not has_terminated:
        print_error(f"{task.id} is still {task.state}; see `aws ecs describe-tasks --cluster {task.cluster}`")
    return has_terminated


def _wait_until_ended(draining: DrainTarget, describe: Callable[[DrainTarget], DrainTarget], end: str) -> DrainTarget:
    """Wait until a host or task has terminated or timed out, and return its last state."""
    progress = Progress(err)
    started_at = time.monotonic()
    with progress.phase(f"drain {draining.id}"):
        while draining.state != end and (waited := time.monotonic() - started_at) <= draining.max_drain_s:
            progress.show_detail(f"{draining.state}, {waited:.0f} s of at most {draining.max_drain_s} s")
            time.sleep(POLL_INTERVAL_S)
            draining = describe(draining)
    return draining


def _format_timeout_message(host: Host) -> str:
    if not host.state.endswith(hosts.TERMINATING_WAIT_STATE):
        return f"{host.id} is still {host.state} in {host.group}; see the activity of the group"
    return (
        f"the hook {host.hook} still blocks the termination of {host.id} after {host.max_drain_s} s, the maximum; "
        f"check its console (`aws ec2 get-console-output --instance-id {host.id}`), then complete the hook:\naws "
        f"autoscaling complete-lifecycle-action --auto-scaling-group-name {host.group} --instance-id {host.id} "
        f"--lifecycle-hook-name {host.hook} --lifecycle-action-result CONTINUE"
    )
