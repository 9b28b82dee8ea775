"""Shows the pods that a deploy on Azure would replace, and monitors a Kubernetes rollout."""

import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import AzureError

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.azure.cluster import Cluster, KubernetesClient, explain_cluster_error
from voice_ops.azure.workloads import (
    DefinedWorkloads,
    LiveDeployment,
    evaluate_workloads,
    fetch_live_deployments,
    find_changed_settings,
)
from voice_ops.exits import FAILED, INTERRUPTED
from voice_ops.output import create_exit, create_table, err, out, print_json
from voice_ops.preflight.azure import account, find_subscription
from voice_ops.preflight.questions import RequestFailure
from voice_sandbox.azure.errors import EngineError

POLL_INTERVAL_S = 10.0
DEFAULT_STARTUP_TIMEOUT_S = 300.0
"""Start-up time of a pod in addition to its startup probes, including the wait for a node. ASSUMED."""
DEFAULT_GRACE_PERIOD_S = 30
"""Kubernetes default for terminationGracePeriodSeconds."""
MAX_SHOWN_SETTINGS = 3
DEPLOY_COMMAND = "pulumi -C stacks/voice_stacks/azure/workloads up --policy-pack ../policy"


@dataclass(frozen=True)
class DeploymentRollout:
    """The replacement of the pods in one Kubernetes Deployment.

    Attributes:
        pods: Desired number of pods.
        at_a_time: Number of pods that are replaced at the same time.
        longest_s: Maximum duration, if every pod needs its full start-up and drain time.
        changed: Settings that differ.
    """

    namespace: str
    deployment: str
    pods: int
    at_a_time: int
    longest_s: float
    changed: tuple[str, ...]


def plan_rollouts(new: DefinedWorkloads, now: Mapping[tuple[str, str], LiveDeployment]) -> list[DeploymentRollout]:
    """Return the rollouts for the Deployments whose pods a deploy of the file would replace."""
    changed = {key: tuple(find_changed_settings(new, key, now[key].manifest)) for key in new.deployments if key in now}
    return [_plan_rollout(key, now[key], settings) for key, settings in changed.items() if settings]


def _plan_rollout(key: tuple[str, str], now: LiveDeployment, changed: tuple[str, ...]) -> DeploymentRollout:
    return DeploymentRollout(
        *key, now.desired_replica_count, _calculate_batch_size(now), calculate_rollout_timeout_s(now), changed
    )


def _calculate_batch_size(now: LiveDeployment) -> int:
    """Return the number of pods that are replaced together: the surge or the maximum number of unavailable pods."""
    limits = now.manifest["spec"].get("strategy", {}).get("rollingUpdate", {}).values()
    return max([1, *(each for each in limits if isinstance(each, int))])


def calculate_rollout_timeout_s(now: LiveDeployment) -> float:
    """Return the timeout of a Deployment's rollout, in seconds."""
    spec = now.manifest["spec"]["template"]["spec"]
    starts = [_calculate_startup_timeout_s(each.get("startupProbe")) for each in spec["containers"]]
    init_container_s = sum(
        _calculate_startup_timeout_s(each.get("startupProbe")) for each in spec.get("initContainers") or ()
    )
    pod_s = (
        DEFAULT_STARTUP_TIMEOUT_S
        + init_container_s
        + max(starts)
        + spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD_S)
    )
    return float(max(1, math.ceil(now.desired_replica_count / _calculate_batch_size(now))) * pod_s)


def _calculate_startup_timeout_s(probe: Mapping[str, Any] | None) -> float:
    return probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10) if probe else 0.0


def roll_out_on_azure(
    deployment: Deployment, *, follow: bool, as_json: bool, environment: Mapping[str, str] = os.environ
) -> None:
    """Show the pods that a deploy would replace, or monitor a rollout in progress. Exit if the rollout fails."""
    subscription = find_subscription(environment)
    if isinstance(subscription, RequestFailure):
        raise create_exit(f"{subscription.result}: {subscription.remedy}", FAILED)
    try:
        kubernetes = Cluster(account.create_account(deployment, Counter(), subscription)).kubernetes
        new = evaluate_workloads(deployment)
        result = plan_rollouts(new, fetch_live_deployments(kubernetes, new.namespaces))
        if as_json:
            print_json({"rolls": [vars(each) for each in result]}, deployment.name)
        elif not follow:
            _print_rollouts(result)
        if follow:
            if result:
                names = ", ".join(each.deployment for each in result)
                raise create_exit(
                    f"not deployed yet, so there is nothing to follow: {names} differ; run `{DEPLOY_COMMAND}`", FAILED
                )
            count = wait_for_rollouts(kubernetes, new)
            (err if as_json else out).print(f"{count} Deployments are rolled out")
    except AzureError as error:
        refusal = explain_cluster_error(error)
        raise create_exit(f"{refusal.result}: {refusal.remedy}", FAILED) from None
    except EngineError as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit(
            "interrupted: the rollout continues; run the command again to follow it", INTERRUPTED
        ) from None


def wait_for_rollouts(kubernetes: KubernetesClient, new: DefinedWorkloads) -> int:
    """Report progress until every Deployment in the file is rolled out, and return the number of Deployments.

    Raises:
        typer.Exit: A Deployment has timed out.
    """
    begin, reported = time.monotonic(), dict[tuple[str, str], str]()
    while True:
        now = {
            key: each
            for key, each in fetch_live_deployments(kubernetes, new.namespaces).items()
            if key in new.deployments
        }
        waiting = {key: each for key, each in now.items() if not each.is_rolled_out}
        for key, each in now.items():
            line = _describe_progress(key[1], each)
            if reported.get(key) != line and (key in reported or key in waiting):
                err.print(line, soft_wrap=True)
            reported[key] = line
        if not waiting:
            return len(now)
        passed = time.monotonic() - begin
        late = {key: each for key, each in waiting.items() if passed > calculate_rollout_timeout_s(each)}
        if late:
            raise create_exit(
                "\n".join(_format_timeout_message(name, each) for (_, name), each in late.items()), FAILED
            )
        time.sleep(POLL_INTERVAL_S)


def _describe_progress(name: str, now: LiveDeployment) -> str:
    pods = f"{now.updated_replica_count} of {now.desired_replica_count} pods are new"
    text = f"{name}: {pods}, {now.available_replica_count} available"
    return f"{text}; {now.problems[0]}" if now.problems else text


def _format_timeout_message(name: str, now: LiveDeployment) -> str:
    return (
        f"{_describe_progress(name, now)} after {calculate_rollout_timeout_s(now) / 60:.0f} min, the longest that "
        "its pods may take: deploy the file of the previous release"
    )


def _print_rollouts(rollouts: list[DeploymentRollout]) -> None:
    if not rollouts:
        out.print("a deploy replaces no pod")
        return
    table = create_table("Pods that a deploy replaces", ["deployment"], ["pods", "at a time", "at most"], "for")
    for roll in rollouts:
        settings = ", ".join(each.removeprefix("spec.") for each in roll.changed[:MAX_SHOWN_SETTINGS])
        more = f" and {len(roll.changed) - MAX_SHOWN_SETTINGS} more" if len(roll.changed) > MAX_SHOWN_SETTINGS else ""
        table.add_row(
            roll.deployment,
            str(roll.pods),
            str(roll.at_a_time),
            f"{roll.longest_s / 3600:.1f} h",
            settings + more,
        )
    out.print(table)
    out.print(
        f"all Deployments roll out at once; `{DEPLOY_COMMAND}` starts them, and `voice rollout FILE --follow` "
        "monitors them",
        soft_wrap=True,
    )
