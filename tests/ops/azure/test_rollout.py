"""`voice rollout` and `voice restore` of an Azure section."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.ops.azure.live_cluster import LiveCluster, pod_for
from tests.stacks.azure.manifests import Manifest
from voice_ops.azure.workloads import DefinedWorkloads
from voice_ops.cli import app

GATEWAY, VOXTRAL = ("voice", "gateway"), ("voice", "voxtral")


def rollout(file: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["rollout", str(file), *options])


def other_image(deployment: Manifest) -> None:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["image"] = container["image"].partition("@")[0] + f"@sha256:{'e' * 64}"


@pytest.mark.usefixtures("live_cluster")
def test_an_up_to_date_cluster_has_no_rollout(file: Path) -> None:
    result = rollout(file)
    assert result.exit_code == 0, result.output
    assert result.stdout == "a deploy replaces no pod\n"


def test_the_pods_that_a_deploy_replaces_are_shown(file: Path, live_cluster: LiveCluster) -> None:
    other_image(live_cluster.deployments[GATEWAY])
    other_image(live_cluster.deployments[VOXTRAL])
    live_cluster.deployments[VOXTRAL]["spec"]["replicas"] = 3
    live_cluster.deployments[GATEWAY]["status"]["availableReplicas"] = 9  # which replaces no pod
    (gateway, voxtral) = sorted(
        json.loads(rollout(file, "--json").stdout)["rolls"], key=lambda roll: roll["deployment"]
    )
    assert (gateway["pods"], gateway["at_a_time"]) == (10, 1)
    assert gateway["changed"] == ["spec.containers[gateway].image"]
    pod = live_cluster.deployments[VOXTRAL]["spec"]["template"]["spec"]
    (start,) = (each["startupProbe"] for each in pod["containers"])
    assert voxtral["longest_s"] >= 3 * (start["failureThreshold"] * start["periodSeconds"])
    shown = rollout(file).stdout
    assert "containers[gateway].image" in shown
    assert "pulumi -C stacks/voice_stacks/azure/workloads up --policy-pack ../policy" in shown
    assert "--follow" in shown


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Replace the clock with one that only waiting advances, and schedule an event in it."""
    now, happens = [0.0], list[Callable[[], None]]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        for each in happens:
            each()

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return happens.append


def test_a_rollout_is_followed_to_its_end(
    file: Path, live_cluster: LiveCluster, clock: Callable[[Callable[[], None]], None]
) -> None:
    """The rollout is complete only when the old pod has terminated."""
    gateway = live_cluster.deployments[GATEWAY]
    gateway["metadata"]["generation"] = 4
    steps = iter([{"observedGeneration": 4, "updatedReplicas": 0},
                  {"updatedReplicas": 6, "availableReplicas": 9},
                  {"updatedReplicas": 10, "availableReplicas": 10, "replicas": 11},
                  {"replicas": 10}])  # fmt: skip
    clock(lambda: gateway["status"].update(next(steps)))
    result = rollout(file, "--follow")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "gateway: 10 of 10 pods are new, 10 available",
        "gateway: 0 of 10 pods are new, 10 available",
        "gateway: 6 of 10 pods are new, 9 available",
        "gateway: 10 of 10 pods are new, 10 available",
    ]
    assert result.stdout == "10 Deployments are rolled out\n"
    assert next(steps, None) is None, "it has waited for the last old pod"


def test_a_delayed_rollout_ends_with_the_reason(
    file: Path, live_cluster: LiveCluster, clock: Callable[[Callable[[], None]], None]
) -> None:
    voxtral = live_cluster.deployments[VOXTRAL]
    voxtral["status"] |= {"updatedReplicas": 0}
    crash = {"name": "engine", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    live_cluster.pods.append(pod_for(voxtral, phase="Running", containerStatuses=[crash]))
    clock(lambda: None)
    result = rollout(file, "--follow")
    assert result.exit_code == 1
    assert "voxtral: 0 of 1 pods are new, 1 available; container engine: CrashLoopBackOff after" in result.stderr
    assert "may take: deploy the file of the previous release" in " ".join(result.stderr.split())
    assert "rollout undo" not in result.stderr, "the ConfigMaps and the image policy of the previous release are gone"
    assert time.monotonic() > 1800, "an engine may take so long to start"


def test_a_file_that_is_not_deployed_has_no_rollout_to_follow(file: Path, live_cluster: LiveCluster) -> None:
    other_image(live_cluster.deployments[GATEWAY])
    result = rollout(file, "--follow")
    assert result.exit_code == 1
    assert "not deployed yet" in result.stderr
    assert "gateway differ" in result.stderr


def test_interruption_reports_that_the_rollout_continues(
    file: Path, live_cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_cluster.deployments[GATEWAY]["status"]["updatedReplicas"] = 3

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    result = rollout(file, "--follow")
    assert result.exit_code == 130
    assert "the rollout continues" in result.stderr


def test_a_refusal_by_the_cluster_is_reported(file: Path, live_cluster: LiveCluster) -> None:
    live_cluster.denied = True
    result = rollout(file)
    assert result.exit_code == 1
    assert "admin_groups" in result.stderr


@pytest.mark.parametrize("options", [["--deploy"], ["--probe", "https://api.example.com"]])
def test_tasks_of_aws_are_refused_with_commands(options: list[str], file: Path) -> None:
    result = rollout(file, *options)
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert "pulumi -C stacks/voice_stacks/azure/workloads up --policy-pack ../policy" in told
    assert "voice rollout FILE --follow" in told


def test_on_aws_there_are_no_pods_to_follow() -> None:
    result = rollout(Path(__file__).parents[3] / "tests/deployments/sandbox.yaml", "--follow")
    assert result.exit_code == 2
    assert "take --deploy" in result.stderr


def test_a_store_without_snapshots_is_not_restored(file: Path) -> None:
    result = CliRunner().invoke(app, ["restore", str(file)])
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert "keeps no snapshots" in told
    assert "pulumi -C stacks/voice_stacks/azure/cluster up --policy-pack ../policy" in told


def test_the_output_of_the_pulumi_program_is_compared(wanted_resources: DefinedWorkloads) -> None:
    assert {"gateway", "vad", "asr", "agent", "router", "voxtral", "qwen-a100"} <= {
        name for _, name in wanted_resources.deployments
    }
    assert wanted_resources.namespaces == ["voice"]
