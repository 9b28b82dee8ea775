"""`voice status` of an Azure section: the cluster compared with the file, and unreadable parts."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner, Result

from tests.nonempty import nonempty
from tests.ops.azure.live_cluster import LiveCluster, pod_for
from tests.stacks.azure.manifests import KUBERNETES
from voice_ops.azure import cluster
from voice_ops.azure.workloads import DefinedWorkloads, find_changed_settings
from voice_ops.cli import app

GATEWAY, ROUTER, SPEECH = ("voice", "gateway"), ("voice", "router"), ("voice", "speech")


def status(file: Path) -> tuple[Result, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(app, ["status", str(file), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result, {row["asked"]: row for row in json.loads(result.stdout)["answers"]}


def wrong(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the failing rows with their remedies."""
    return {asked: f"{row['found']} → {row['remedy']}" for asked, row in rows.items() if row["status"] != "fine"}


def containers(live_cluster: LiveCluster, key: tuple[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = live_cluster.deployments[key]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.usefixtures("live_cluster")
def test_an_up_to_date_cluster_has_no_problem(file: Path, wanted_resources: DefinedWorkloads) -> None:
    result, rows = status(file)
    assert wrong(rows) == {}
    assert result.exit_code == 0
    assert rows["cluster mine"]["found"] == "Succeeded, Running, Kubernetes 1.36.4"
    assert rows["pool h200"]["found"] == "1 x Standard_ND96isr_H200_v5, Succeeded"
    assert rows["deployment gateway"]["found"] == "10 of 10 pods available"
    assert {f"deployment {name}" for _, name in wanted_resources.deployments} < rows.keys()
    assert {
        "pool system",
        "pool cpu",
        "pool pairs",
        "image gateway of gateway",
        "image asr-vllm of voxtral",
    } < rows.keys()


def test_the_objects_of_the_fake_cluster_match_the_kubernetes_schema(
    live_cluster: LiveCluster, wanted_resources: DefinedWorkloads
) -> None:
    """Objects of the API server have another form than those of the file, and each fault is a change of them."""
    for key, each in nonempty(live_cluster.deployments.items()):
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
        assert each["spec"]["template"] != wanted_resources.deployments[key]["spec"]["template"]
        assert find_changed_settings(wanted_resources, key, each) == []


def test_images_and_settings_that_differ_are_listed(file: Path, live_cluster: LiveCluster) -> None:
    (gateway,) = containers(live_cluster, GATEWAY)
    gateway["image"] = gateway["image"].partition("@")[0] + f"@sha256:{'e' * 64}"
    next(each for each in gateway["env"] if each["name"] == "VOICE_TOKEN_TTL_S")["value"] = "301"
    gateway["resources"]["limits"]["memory"] = "3Gi"
    (router,) = containers(live_cluster, ROUTER)
    router["command"] = [*router["command"][:-1], "another"]
    result, rows = status(file)
    assert result.exit_code == 1
    assert set(wrong(rows)) == {"image gateway of gateway", "settings of gateway", "settings of router"}
    assert rows["image gateway of gateway"]["found"] == f"sha256:{'e' * 12}"
    assert set(rows["settings of gateway"]["found"].removeprefix("2 differ: ").split(", ")) == {
        "spec.containers[gateway].resources.limits.memory",
        "spec.containers[gateway].env[VOICE_TOKEN_TTL_S].value",
    }
    assert "pulumi -C stacks/voice_stacks/azure/workloads up" in rows["settings of router"]["remedy"]


def test_mounts_of_the_same_volume_are_distinguished(file: Path, live_cluster: LiveCluster) -> None:
    (engine,) = containers(live_cluster, SPEECH)
    mounts = [each for each in engine["volumeMounts"] if each["name"] == "files"]
    assert len(mounts) > 1, "the engine's files come from one ConfigMap"
    engine["volumeMounts"].reverse()  # the order is not compared
    assert wrong(status(file)[1]) == {}
    mounts[-1]["subPath"] = "another"
    (row,) = wrong(status(file)[1]).values()
    assert f"volumeMounts[{mounts[-1]['mountPath']}].subPath" in row


def test_pods_that_do_not_run_are_counted_with_their_reason(file: Path, live_cluster: LiveCluster) -> None:
    speech, gateway = live_cluster.deployments[SPEECH], live_cluster.deployments[GATEWAY]
    speech["status"]["availableReplicas"] = 1
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes"}
    live_cluster.pods.append(pod_for(speech, phase="Pending", conditions=[unscheduled]))
    waiting = {"name": "gateway", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    live_cluster.pods.append(pod_for(gateway, phase="Pending", containerStatuses=[waiting]))
    starting = {"name": "router", "state": {"waiting": {"reason": "ContainerCreating"}}}
    live_cluster.pods.append(pod_for(live_cluster.deployments[ROUTER], phase="Pending", containerStatuses=[starting]))
    found = wrong(status(file)[1])
    assert found == {
        "deployment speech": "1 of 2 pods available → a pod cannot be scheduled: 0/9 nodes",
        "deployment gateway": "10 of 10 pods available → container gateway: ImagePullBackOff",
    }


def test_resources_in_only_one_of_cluster_and_file_are_reported(file: Path, live_cluster: LiveCluster) -> None:
    live_cluster.deployments["voice", "left-over"] = live_cluster.deployments.pop(SPEECH)
    live_cluster.deployments["voice", "left-over"]["metadata"]["name"] = "left-over"
    found = wrong(status(file)[1])
    assert set(found) == {"deployment speech", "deployment left-over"}
    assert found["deployment speech"].startswith("not deployed → deploy the file")
    assert "kubectl delete deployment --namespace=voice left-over" in found["deployment left-over"]


@pytest.mark.parametrize(
    ("pool", "change", "remedy"),
    [
        ("h100", {"maxCount": 9}, "stacks/voice_stacks/azure/cluster up"),
        ("h100", {"vmSize": "Standard_NC40ads_H100_v5"}, "stacks/voice_stacks/azure/cluster up"),
        ("pairs", {"provisioningState": "Failed"}, "see the pool in the portal"),
        ("cpu", {"count": 1}, "see the pool in the portal"),
    ],
)
def test_pools_are_compared_with_the_file(
    pool: str, change: dict[str, Any], remedy: str, file: Path, live_cluster: LiveCluster
) -> None:
    live_cluster.pools[pool] |= change
    found = wrong(status(file)[1])
    assert list(found) == [f"pool {pool}"]
    assert remedy in found[f"pool {pool}"]


def test_an_old_or_stopped_cluster_is_reported(file: Path, live_cluster: LiveCluster) -> None:
    assert live_cluster.cluster
    live_cluster.cluster |= {"kubernetesVersion": "1.35", "currentKubernetesVersion": "1.35.2"}
    assert list(wrong(status(file)[1])) == ["cluster mine"]
    live_cluster.cluster |= {"kubernetesVersion": "1.36", "powerState": {"code": "Stopped"}}
    assert "see the activity log" in wrong(status(file)[1])["cluster mine"]


def test_before_the_first_deploy_the_deploy_command_is_printed(file: Path, live_cluster: LiveCluster) -> None:
    live_cluster.cluster = None
    result, rows = status(file)
    assert result.exit_code == 1
    assert "pulumi -C stacks/voice_stacks/azure/cluster up --policy-pack ../policy" in rows["cluster mine"]["remedy"]
    assert list(rows) == ["cluster mine"], "nothing else is asked of a cluster that is not there"


def test_missing_read_permission_is_reported(file: Path, live_cluster: LiveCluster) -> None:
    live_cluster.denied = True
    result, rows = status(file)
    assert rows["deployments"]["status"] == "unanswered"
    assert "cannot list resource" in rows["deployments"]["found"]
    assert "admin_groups" in rows["deployments"]["remedy"]
    assert rows["pool h100"]["status"] == "fine", "what was answered stays"
    assert result.exit_code == 0, "a refusal is no fault of the cluster"


def test_an_unreachable_api_server_is_reported(file: Path, live_cluster: LiveCluster) -> None:
    live_cluster.kubeconfig = live_cluster.kubeconfig.replace("localhost", "mine.privatelink.invalid")
    rows = status(file)[1]
    assert "cannot reach the API server" in rows["deployments"]["found"]
    assert "`access` in docs/guides/azure.md" in rows["deployments"]["remedy"]


def test_a_silent_api_server_is_reported(
    file: Path, live_cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy accepts the connection, and then reaches no private address."""
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(cluster, "MAX_ATTEMPTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        live_cluster.kubeconfig = re.sub(r"localhost:\d+", f"localhost:{port}", live_cluster.kubeconfig)
        rows = status(file)[1]
    assert "cannot reach the API server" in rows["deployments"]["found"]


def test_without_a_subscription_no_status_is_reported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)
    result, rows = status(file)
    assert result.exit_code == 1
    assert {row["status"] for row in rows.values()} == {"not asked"}
    assert "az login" in rows["cluster"]["remedy"]
