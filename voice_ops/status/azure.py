"""Compares an Azure section with the cluster, its node pools and its Deployments."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from azure.core.exceptions import AzureError

from voice_blueprint.azure import names
from voice_blueprint.file.model.azure import CPU_POOL_NAME, SYSTEM_POOL_NAME
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.azure.cluster import Cluster, explain_cluster_error
from voice_ops.azure.workloads import (
    DefinedWorkloads,
    LiveDeployment,
    evaluate_workloads,
    extract_image_digests,
    fetch_live_deployments,
    find_changed_settings,
)
from voice_ops.preflight.azure import account, find_subscription
from voice_ops.preflight.azure.account import REPORT_AREA
from voice_ops.preflight.questions import RequestFailure, report_skipped_checks, run_checks
from voice_ops.preflight.report import CheckResult, create_check_result
from voice_sandbox.azure.errors import EngineError

DEPLOY_WORKLOADS_REMEDY = "deploy the file: pulumi -C stacks/voice_stacks/azure/workloads up --policy-pack ../policy"
DEPLOY_CLUSTER_REMEDY = "deploy the file: pulumi -C stacks/voice_stacks/azure/cluster up --policy-pack ../policy"
HEALTHY_CLUSTER_STATES = ("Succeeded", "Running")
"""Provisioning state and power state of a healthy cluster."""
DIGEST_LENGTH, MAX_SHOWN_SETTINGS = 19, 4
QUERY_ERRORS = (AzureError, EngineError)


@dataclass(frozen=True)
class ClusterState:
    """A deployment and its cluster, whose objects are read on first use."""

    deployment: Deployment
    cluster: Cluster

    @cached_property
    def workloads(self) -> DefinedWorkloads:
        return evaluate_workloads(self.deployment)

    @cached_property
    def deployments(self) -> dict[tuple[str, str], LiveDeployment]:
        return fetch_live_deployments(self.cluster.kubernetes, self.workloads.namespaces)


def check_azure_section(deployment: Deployment, environment: Mapping[str, str] = os.environ) -> Iterator[CheckResult]:
    """Compare the cluster, its pools and its Deployments with the file. Azure errors are reported as results."""
    subscription = find_subscription(environment)
    if isinstance(subscription, RequestFailure):
        yield from report_skipped_checks(REPORT_AREA, CHECKS_BY_TOPIC, subscription.result, subscription.remedy)
        return
    state = ClusterState(deployment, Cluster(account.create_account(deployment, Counter(), subscription)))
    questions = {topic: partial(query, state) for topic, query in CHECKS_BY_TOPIC.items()}
    for row in run_checks(REPORT_AREA, questions, QUERY_ERRORS, explain_cluster_error):
        yield row
        if row == _create_not_deployed_result(deployment):
            return


def compare_cluster(state: ClusterState) -> Iterator[CheckResult]:
    """Compare the state and version of the cluster with the file."""
    name, version = names.build_cluster_name(state.deployment), state.deployment.azure.kubernetes_version
    result = state.cluster.fetch_properties()
    if result is None:
        yield _create_not_deployed_result(state.deployment)
        return
    runs, power = result.get("kubernetesVersion", ""), result.get("powerState", {}).get("code", "")
    now = f"{result.get('provisioningState')}, {power}, Kubernetes {result.get('currentKubernetesVersion') or runs}"
    remedy = (
        "see the activity log of the cluster"
        if (result.get("provisioningState"), power) != HEALTHY_CLUSTER_STATES
        else ""
    )
    if runs != version and not runs.startswith(f"{version}."):
        remedy = remedy or DEPLOY_CLUSTER_REMEDY
    yield create_check_result(REPORT_AREA, f"cluster {name}", now, f"Kubernetes {version}", warns=remedy)


def _create_not_deployed_result(deployment: Deployment) -> CheckResult:
    """Return the row of a missing cluster, which is the only row before the first deploy."""
    version = f"Kubernetes {deployment.azure.kubernetes_version}"
    return create_check_result(
        REPORT_AREA,
        f"cluster {names.build_cluster_name(deployment)}",
        "not deployed",
        version,
        warns=DEPLOY_CLUSTER_REMEDY,
    )


def compare_pools(state: ClusterState) -> Iterator[CheckResult]:
    """Compare the VM size, number of nodes and state of each pool with the file."""
    section = state.deployment.azure
    pools: list[tuple[str, str, HostCount]] = [
        (SYSTEM_POOL_NAME, section.system_pool.vm_size, section.system_pool.nodes)
    ]
    pools += [(CPU_POOL_NAME, pool.vm_size, pool.nodes) for pool in [section.cpu_pool] if pool]
    pools += [(pool.name, pool.vm_size, pool.nodes) for pool in section.pools]
    for name, size, nodes in pools:
        subject, expected = f"pool {name}", f"{nodes.min} to {nodes.max} x {size}"
        result = state.cluster.fetch_properties(f"/agentPools/{name}")
        if result is None:
            yield create_check_result(REPORT_AREA, subject, "not deployed", expected, warns=DEPLOY_CLUSTER_REMEDY)
            continue
        count = result.get("count", 0)
        now = f"{count} x {result.get('vmSize')}, {result.get('provisioningState')}"
        is_as_configured = result.get("vmSize") == size and (result.get("minCount"), result.get("maxCount")) == (
            nodes.min,
            nodes.max,
        )
        remedy = "" if is_as_configured else DEPLOY_CLUSTER_REMEDY
        if result.get("provisioningState") == "Failed" or count < nodes.min:
            remedy = "see the pool in the portal: a quota or the location's capacity may prevent it"
        yield create_check_result(REPORT_AREA, subject, now, expected, warns=remedy)


def compare_deployments(state: ClusterState) -> Iterator[CheckResult]:
    """Compare the pods, images and settings in each Deployment with the file.

    Deployments that the file does not define are reported as well.
    """
    for key in state.workloads.deployments:
        result = state.deployments.get(key)
        if result is None:
            yield create_check_result(
                REPORT_AREA, f"deployment {key[1]}", "not deployed", warns=DEPLOY_WORKLOADS_REMEDY
            )
            continue
        pods = f"{result.available_replica_count} of {result.desired_replica_count} pods available"
        wrong = "; ".join(result.problems)
        if result.available_replica_count < result.desired_replica_count:
            wrong = wrong or f"kubectl describe deployment --namespace={key[0]} {key[1]}"
        yield create_check_result(REPORT_AREA, f"deployment {key[1]}", pods, warns=wrong)
        yield from _compare_images(state.workloads, key, result)
    for namespace, name in state.deployments.keys() - state.workloads.deployments.keys():
        remedy = (
            f"{DEPLOY_WORKLOADS_REMEDY}; if the deploy does not delete it: kubectl delete deployment "
            f"--namespace={namespace} {name}"
        )
        yield create_check_result(REPORT_AREA, f"deployment {name}", "not in the file", "none", warns=remedy)


def _compare_images(
    new: DefinedWorkloads, key: tuple[str, str], live_deployment: LiveDeployment
) -> Iterator[CheckResult]:
    runs, named = extract_image_digests(live_deployment.manifest), extract_image_digests(new.deployments[key])
    for image, digest in named.items():
        remedy = "" if runs.get(image) == digest else DEPLOY_WORKLOADS_REMEDY
        yield create_check_result(
            REPORT_AREA,
            f"image {image} of {key[1]}",
            shorten_digest(runs.get(image)),
            shorten_digest(digest),
            warns=remedy,
        )
    settings = [
        each for each in find_changed_settings(new, key, live_deployment.manifest) if not each.endswith(".image")
    ]
    if settings:
        difference = f"{len(settings)} differ: {', '.join(settings[:MAX_SHOWN_SETTINGS])}"
        yield create_check_result(
            REPORT_AREA, f"settings of {key[1]}", difference, "as in the file", warns=DEPLOY_WORKLOADS_REMEDY
        )


def shorten_digest(digest: str | None) -> str:
    """Shorten a digest for display, or return ``none`` if there is no digest."""
    return digest[:DIGEST_LENGTH] if digest else "none"


CHECKS_BY_TOPIC: dict[str, Callable[[ClusterState], Iterator[CheckResult]]] = {
    "cluster": compare_cluster,
    "node pools": compare_pools,
    "deployments": compare_deployments,
}
"""Comparisons by topic, in the order of the report."""
