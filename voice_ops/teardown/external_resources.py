"""Finds and deletes resources outside of stacks, which `voice`, jobs and AWS services have created."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from voice_blueprint.aws import names
from voice_ops.aws.account import Account
from voice_ops.aws.deletion import DeletionError
from voice_ops.rollout.resume import delete_rollout, load_rollout
from voice_ops.teardown.plan import RetainedResource

POLL_INTERVAL_S = 5.0
MAX_WAIT_S = 600.0
"""Timeout for the termination of a job's host. A shutdown takes a minute or two, or up to ten with accelerators."""
MAX_UPDATE_WAIT_S = 7200.0
"""Timeout for the end of an update. The rollback of an instance refresh replaces hosts again."""
MACHINE_IMAGE_KIND = "machine image"
_RUNNING_STATES = ["pending", "running", "stopping", "stopped"]
_CONTAINER_INSIGHTS_LOG_PREFIX = "/aws/ecs/containerinsights/"
_IMAGE_BUILDER_PREFIX = "/aws/imagebuilder/"


def cancel_rollout(account: Account, report: Callable[[str], None]) -> None:
    """Cancel a rollout, and delete its record so that no pipeline can resume it.

    Raises:
        DeletionError: An update has not ended in time. CloudFormation cannot delete a stack during an update.
    """
    if rollout := load_rollout(account):
        report(f"the rollout {rollout.label} is cancelled: `voice rollout --resume` cannot continue it")
        delete_rollout(account)
    client, started_at = account.session.client("cloudformation"), time.monotonic()
    reported = set[str]()
    while updated := _find_updating_stacks(account):
        for stack in updated.keys() - reported:
            reported.add(stack)
            report(f"{stack} is {updated[stack]}: waiting at most {MAX_UPDATE_WAIT_S / 3600:g} h for its end")
            if updated[stack] == "UPDATE_IN_PROGRESS":
                client.cancel_update_stack(StackName=stack)
        if (waited := time.monotonic() - started_at) > MAX_UPDATE_WAIT_S:
            states = ", ".join(f"{stack} is {state}" for stack, state in updated.items())
            raise DeletionError(
                f"{states} after {waited:.0f} s (limit: {MAX_UPDATE_WAIT_S:.0f} s): check the events, and run the "
                "command again"
            )
        time.sleep(POLL_INTERVAL_S)


def _find_updating_stacks(account: Account) -> dict[str, str]:
    """Return the stacks whose update is in progress, with their status."""
    states = account.fetch_stack_statuses().items()
    return {stack: state for stack, state in states if state.startswith("UPDATE_") and state.endswith("_IN_PROGRESS")}


def terminate_job_hosts(account: Account, report: Callable[[str], None]) -> None:
    """Terminate the hosts of jobs, and wait until they have terminated.

    Their network interfaces would prevent the deletion of subnets and security groups.

    Raises:
        DeletionError: A host still exists after the timeout.
    """
    client = account.session.client("ec2")
    started_at, reported = time.monotonic(), set[str]()
    while hosts := _find_job_instances(account):
        if new_hosts := sorted(hosts - reported):
            report(f"terminate {', '.join(new_hosts)}: hosts of jobs, or not in an Auto Scaling group")
            client.terminate_instances(InstanceIds=new_hosts)
            reported |= hosts
        elif (waited := time.monotonic() - started_at) > MAX_WAIT_S:
            raise DeletionError(
                f"{', '.join(sorted(hosts))} not terminated after {waited:.0f} s (limit: {MAX_WAIT_S:.0f} s): check "
                "the state, and run the command again"
            )
        time.sleep(POLL_INTERVAL_S)


def _find_job_instances(account: Account) -> set[str]:
    """Return the ids of the deployment's instances that do not belong to an Auto Scaling group."""
    filters: Any = [
        {"Name": f"tag:{names.DEPLOYMENT_TAG}", "Values": [account.deployment.name]},
        {"Name": "instance-state-name", "Values": [*_RUNNING_STATES, "shutting-down"]},
    ]
    result: Iterator[Mapping[str, Any]] = account.iter_paginated_items(
        "ec2", "describe_instances", "Reservations[].Instances[]", Filters=filters
    )
    group_tag = "aws:autoscaling:groupName"
    return {each["InstanceId"] for each in result if group_tag not in {tag["Key"] for tag in each.get("Tags", [])}}


def find_service_log_groups(account: Account, templates: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the log groups that AWS services have created for the resources in templates.

    Container Insights creates one log group per cluster, and Image Builder one per recipe.
    """
    for stack, template in templates.items():
        for logical, resource in template["Resources"].items():
            prefix = _build_log_prefix(stack, logical, resource)
            if prefix:
                yield from account.iter_paginated_items(
                    "logs", "describe_log_groups", "logGroups[].logGroupName", logGroupNamePrefix=prefix
                )


def _build_log_prefix(stack: str, logical: str, resource: Mapping[str, Any]) -> str | None:
    match resource["Type"]:
        case "AWS::ECS::Cluster":
            # CloudFormation appends random characters to generated names.
            return f"{_CONTAINER_INSIGHTS_LOG_PREFIX}{stack}-{logical}-"
        case "AWS::ImageBuilder::ImageRecipe":
            return f"{_IMAGE_BUILDER_PREFIX}{resource['Properties']['Name']}"
    return None


def delete_log_groups(account: Account, templates: Mapping[str, Mapping[str, Any]]) -> None:
    """Delete the log groups that ``find_service_log_groups`` returns.

    The resources that write to them must have been deleted.
    """
    client = account.session.client("logs")
    for group in find_service_log_groups(account, templates):
        client.delete_log_group(logGroupName=group)


def find_machine_images(account: Account) -> Iterator[RetainedResource]:
    """Yield the machine images that were built for fleets. They are retained because the file may refer to them."""
    tag_filter = [{"Name": f"tag:{names.DEPLOYMENT_TAG}", "Values": [account.deployment.name]}]
    for each in account.iter_paginated_items("ec2", "describe_images", "Images[]", Owners=["self"], Filters=tag_filter):
        fleet = {tag["Key"]: tag["Value"] for tag in each.get("Tags", [])}.get("voice-serve:fleet", "a fleet")
        reason = f"baked for {fleet}; `aws ec2 deregister-image --delete-associated-snapshots` deletes it"
        yield RetainedResource("", each["ImageId"], MACHINE_IMAGE_KIND, reason, None)
