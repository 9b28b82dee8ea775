"""Resources removed from the file are drained and deleted on the local AWS, while others keep serving."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.blueprint.documents import ABSENT, DEPLOYMENTS, Edits, edit_document, load_text, parse_yaml
from tests.boto_calls import actions, record_calls
from voice_blueprint.aws import names
from voice_blueprint.shipped import ROOT
from voice_ops.cli import app
from voice_ops.exits import INTERRUPTED
from voice_ops.preflight.aws.commands import ACTIONS_BY_COMMAND
from voice_ops.rollout.resume import StoredRollout
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk

FILE = DEPLOYMENTS / "sandbox.yaml"
BASE: Edits = {"aws.availability_zones": ["us-east-1a"], "aws.network.nat_gateways": 1}
INF2, TRN1, P5 = parse_yaml(FILE.read_text(encoding="utf-8"))["aws"]["asr"]
"""Fleets of the file; no two have the same scaling rules."""
GPU = {**P5, "name": "inf2", "instance_type": "g6.xlarge"}
"""The first fleet with GPUs instead: its hosts run another engine, so no fleet needs the Neuron image."""
WEST = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
MAIN = "from voice_ops.main import main; main()"
ROLLOUT = "/voice/sandbox/rollout"
INSIGHTS = "/aws/ecs/containerinsights"
OTHER_ENGINE = "inf2 are replaced, inf2.48xlarge to g6.xlarge"

pytestmark = [pytest.mark.sandbox]


class Operator:
    """Operator with a deployment file, who edits it and runs commands."""

    def __init__(self, rehearsal: Rehearsal, file: Path) -> None:
        self.rehearsal, self.file, self.aws = rehearsal, file, rehearsal.aws

    def edit(self, edits: Edits) -> None:
        self.file.write_text(edit_document(edits, self.file.read_text(encoding="utf-8")), encoding="utf-8")

    def voice(self, command: str, *arguments: str | Path) -> Result:
        """Run a command, and assert that its AWS calls are allowed by its policy."""
        with record_calls() as calls:
            result = CliRunner().invoke(app, [command, str(self.file), *map(str, arguments)])
        assert actions(calls) <= ACTIONS_BY_COMMAND.get(command, frozenset()), command
        return result

    def interrupt(self, command: str, at: str) -> None:
        """Run a command in a separate process, and press Ctrl-C once it prints a line that contains a text."""
        program = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {MAIN}"
        words = [sys.executable, "-c", program, command, str(self.file), "--yes"]
        with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if at in line:
                    process.send_signal(signal.SIGINT)
                    break
            said += process.stderr.readlines()
            assert process.wait() == INTERRUPTED, "".join(said)
        assert "run the command again" in " ".join("".join(said).split())

    def deploy(self) -> None:
        Cdk(self.aws, voice_blueprint.load(self.file), self.rehearsal.home).deploy()

    def client(self, service: Any, region: str = "us-east-1") -> Any:  # noqa: ANN401  boto3's
        return self.aws.create_session(region).client(service, endpoint_url=self.aws.endpoint)

    def stacks(self, region: str = "us-east-1") -> set[str]:
        found = self.client("cloudformation", region).describe_stacks()["Stacks"]
        return {_short(each["StackName"], region) for each in found} - {"CDKToolkit"}

    def hosts(self, region: str = "us-east-1") -> dict[str, int]:
        """Count the hosts in service of each group."""
        groups = self.client("autoscaling", region).describe_auto_scaling_groups()["AutoScalingGroups"]
        return {
            _short(each["AutoScalingGroupName"], region): sum(
                host["LifecycleState"] == "InService" for host in each["Instances"]
            )
            for each in groups
        }

    def serve(self) -> None:
        """Let ECS create the log group of each cluster, as with running tasks and Container Insights."""
        for arn in self.client("ecs").list_clusters()["clusterArns"]:
            with suppress(self.client("logs").exceptions.ResourceAlreadyExistsException):
                self.client("logs").create_log_group(logGroupName=f"{INSIGHTS}/{arn.rpartition('/')[2]}/performance")

    def insights(self) -> list[str]:
        found = self.client("logs").describe_log_groups(logGroupNamePrefix=INSIGHTS)["logGroups"]
        return [each["logGroupName"] for each in found]

    def begin_rollout(self, label: str) -> None:
        """Record a rollout in the account, like `voice rollout --start`."""
        rollout = StoredRollout("a hash", label, "2026-11-26T00:00:00+00:00")
        self.client("ssm").put_parameter(Name=ROLLOUT, Value=json.dumps(asdict(rollout)), Type="String")

    def bake(self) -> str:
        """Create an AMI like an Image Builder pipeline, with a running host of the job."""
        tags = [{"Key": names.DEPLOYMENT_TAG, "Value": "sandbox"}]
        ec2 = self.client("ec2")
        image: str = ec2.register_image(Name="baked", RootDeviceName="/dev/xvda")["ImageId"]
        ec2.create_tags(Resources=[image], Tags=tags)
        asked = [{"ResourceType": "instance", "Tags": tags}]
        ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=asked)
        return image

    def alarms(self) -> set[str]:
        pages = self.client("cloudwatch").get_paginator("describe_alarms").paginate()
        return {alarm["AlarmName"] for page in pages for alarm in page["MetricAlarms"]}

    def differences(self) -> list[str]:
        """Return the differences between the file and the account."""
        return [claim.text for claim in self.rehearsal.verify(voice_blueprint.load(self.file)) if not claim.passed]

    @contextmanager
    def uninterrupted(self, *groups: str) -> Iterator[None]:
        """Fail if one of these groups has no serving host at any time, or if the gateway service disappears."""
        over, lost = threading.Event(), set[str]()

        def check_hosts() -> None:
            while not over.wait(0.2):
                hosts = self.hosts()
                lost.update(group for group in groups if not hosts.get(group))
                if "edge" not in self.stacks():
                    lost.add("gateway")

        thread = threading.Thread(target=check_hosts)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert not lost


def _short(name: str, region: str) -> str:
    return name.removeprefix("sandbox-").removeprefix(f"{region}-")


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    """Return a signed-in operator with the file of a sandbox in one zone."""
    for module in ("voice_ops.prune.drain", "voice_ops.aws.deletion", "voice_ops.teardown.external_resources"):
        monkeypatch.setattr(f"{module}.POLL_INTERVAL_S", 0.2)
    monkeypatch.setattr("voice_ops.prune.drain.DNS_CACHE_TTL_S", 0.0)
    file = tmp_path / "sandbox.yaml"
    file.write_text(edit_document(BASE, FILE.read_text(encoding="utf-8")), encoding="utf-8")
    (tmp_path / "all").mkdir()
    with Rehearsal(
        load_text(edit_document({"aws.other_regions": [WEST]}, file.read_text()), tmp_path / "all")
    ) as running:
        running.bootstrap()
        for name, value in running.aws.build_environment(running.home).items():
            monkeypatch.setenv(name, value)
        yield Operator(running, file)


def plan_removal(operator: Operator, release: Path) -> tuple[int, dict[str, str], list[str]]:
    """Return the result of `voice plan --against`: its code, removed resources with remedies, and replaced hosts."""
    result = operator.voice("plan", "--against", release, "--json")
    report = json.loads(result.stdout)
    return result.exit_code, {each["name"]: each["down"] for each in report["outages"]}, report["replaced_hosts"]


@pytest.mark.parametrize(
    "others", [pytest.param([], id="one region"), pytest.param([WEST], id="two regions", marks=pytest.mark.nightly)]
)
def test_fleets_agents_and_an_engine_are_removed_without_interrupting_service(
    operator: Operator, tmp_path: Path, others: list[dict[str, Any]]
) -> None:
    regions = {"us-east-1": "sandbox"} | {each["region"]: f"sandbox-{each['region']}" for each in others}
    if others:
        operator.edit({"aws.other_regions": others})
    operator.deploy()
    assert operator.voice("plan", "--record", tmp_path / "release").exit_code == 0
    operator.edit({"aws.asr": [GPU, P5], "aws.agents": ABSENT, "aws.host_images": ABSENT})
    code, leaves, hosts = plan_removal(operator, tmp_path / "release")
    gone = {"agents", "host-images", "asr-trn1"}
    left = sorted(f"{name}-{tier}" for name in regions.values() for tier in gone)
    assert (code, sorted(leaves)) == (2, left)
    assert all(f"`voice prune {operator.file}`" in todo for todo in leaves.values())
    for name in regions.values():
        assert [line for line in hosts if line.startswith(f"hosts of {name}-{OTHER_ENGINE}")]

    # A deployment succeeds without pruning, and remaining resources are detected.
    with operator.uninterrupted("vad-a", "inf2", "p5"):
        operator.deploy()
    assert sorted(json.loads(operator.voice("rollout", "--json").stdout)["left"]) == left
    for region, name in regions.items():
        assert gone < operator.stacks(region)
        answers = json.loads(operator.voice("status", "--json", "--region", region).stdout)["answers"]
        rows = {row["asked"]: row for row in answers}
        for asked in (*(f"stack {name}-{tier}" for tier in gone), f"hosts of {name}-trn1"):
            assert (rows[asked]["status"], rows[asked]["needed"]) == ("warning", "not in the file")

    operator.serve()
    assert len(operator.insights()) == 2
    operator.begin_rollout("one")
    refused = operator.voice("prune", "--yes")
    assert (refused.exit_code, "the rollout one, started at" in refused.stderr) == (1, True)
    operator.client("ssm").delete_parameter(Name=ROLLOUT)
    with operator.uninterrupted("vad-a", "inf2", "p5"):
        result = operator.voice("prune", "--yes")
    assert result.exit_code == 0, result.output
    assert [name for name in operator.insights() if "agents" in name] == []
    assert len(operator.insights()) == 1
    for region, name in regions.items():
        assert f"draining: 1 of {name}-trn1" in result.stderr
        assert operator.stacks(region) == {
            "network", "registry", "state", "vad", "asr", "edge", "observability", "asr-inf2", "asr-p5"
        }  # fmt: skip
        assert operator.hosts(region) == {"vad-a": 1, "inf2": 1, "p5": 1}
    assert not [alarm for alarm in operator.alarms() if "trn1" in alarm or "agent-" in alarm]
    assert operator.differences() == []
    assert "no stack was removed from the file" in operator.voice("prune", "--yes").stdout

    image = operator.bake()
    operator.begin_rollout("two")
    for region in regions:
        for attempt in range(2):
            result = operator.voice("teardown", "--yes", "--region", region)
            assert result.exit_code == 0, f"{attempt}: {result.output}"
            assert (image in result.stdout) == (region == "us-east-1")
    assert operator.rehearsal.count_remaining_resources().keys() == {"role"}


@pytest.mark.nightly
def test_a_renamed_fleet_serves_before_the_old_one_is_removed(operator: Operator, tmp_path: Path) -> None:
    operator.deploy()
    assert operator.voice("plan", "--record", tmp_path / "release").exit_code == 0
    operator.edit({"aws.asr": [INF2, {**P5, "name": "gpu"}]})
    code, leaves, _ = plan_removal(operator, tmp_path / "release")
    assert (code, sorted(leaves)) == (2, ["sandbox-asr-p5", "sandbox-asr-trn1"])
    first = f"cdk deploy sandbox-asr-gpu --exclusively -c deployment={operator.file}"
    assert all(f"`{first}`, then `voice prune" in todo for todo in leaves.values())
    refused = operator.voice("prune", "--yes")
    assert (refused.exit_code, first in refused.stderr) == (1, True)
    assert {"asr-p5", "asr-trn1"} < operator.stacks()
    with operator.uninterrupted("vad-a", "inf2"):
        Cdk(operator.aws, voice_blueprint.load(operator.file), operator.rehearsal.home).deploy_only("sandbox-asr-gpu")
        assert {alarm for alarm in operator.alarms() if "-p5" in alarm}, "its alarms watch it until it is gone"
        assert operator.voice("prune", "--yes").exit_code == 0
        operator.deploy()
    assert operator.hosts() == {"vad-a": 1, "inf2": 1, "gpu": 1}
    assert not [alarm for alarm in operator.alarms() if "-p5" in alarm or "trn1" in alarm]
    assert operator.differences() == []


@pytest.mark.nightly
def test_removing_a_region_does_not_affect_another(operator: Operator, tmp_path: Path) -> None:
    one = operator.file.read_text(encoding="utf-8")
    operator.edit({"aws.other_regions": [WEST], "aws.asr": [INF2], "aws.host_images": ABSENT, "aws.agents": ABSENT})
    operator.deploy()
    assert operator.voice("plan", "--record", tmp_path / "release").exit_code == 0
    operator.edit({"aws.other_regions": ABSENT})
    code, leaves, _ = plan_removal(operator, tmp_path / "release")
    assert (code, "us-west-2" in leaves) == (2, True)
    assert not [name for name in leaves if name != "us-west-2" and "AnyRegion" not in name], "and the shared name goes"
    assert "api.any.voice.example.com" in leaves["us-west-2"]
    assert f"then `voice prune {operator.file}`" in leaves["us-west-2"]
    west = operator.stacks("us-west-2")
    with operator.uninterrupted("vad-a", "inf2"):
        operator.deploy()
        assert operator.stacks("us-west-2") == west
        rows = {row["asked"]: row for row in json.loads(operator.voice("status", "--json").stdout)["answers"]}
        assert rows["region us-west-2"]["status"] == "warning"
        result = operator.voice("prune", "--yes")
    assert result.exit_code == 0, result.output
    assert "us-west-2 counts as unhealthy now" in result.stderr
    assert operator.stacks("us-west-2") == set()
    assert operator.hosts("us-west-2") == {}
    assert operator.differences() == []
    # Resources of another file with the old name of the region must not be deleted.
    operator.file.write_text(edit_document({"name": "sandbox-us-west-2"}, one))
    assert operator.voice("prune", "--dry-run").stdout.strip() == "no stack was removed from the file"
    operator.file.write_text(edit_document({"aws.asr": [INF2], "aws.host_images": ABSENT, "aws.agents": ABSENT}, one))
    assert operator.voice("teardown", "--yes").exit_code == 0
    assert operator.rehearsal.count_remaining_resources().keys() == {"role"}


@pytest.mark.nightly
def test_a_retried_teardown_includes_removed_regions(operator: Operator) -> None:
    """The agents' stack was removed from the file while alarms import from it, and the VAD stack has been deleted."""
    operator.edit({"environment": "staging", "aws.observability.monthly_budget_usd": 30_000})
    operator.deploy()
    operator.edit({"aws.agents": ABSENT})
    cloudformation = operator.client("cloudformation")
    for stack in ("sandbox-observability", "sandbox-host-images", "sandbox-agents"):
        cloudformation.delete_stack(StackName=stack)
    operator.edit({"aws.asr": [INF2]})
    for attempt in range(2):
        result = operator.voice("teardown", "--yes")
        assert result.exit_code == 0, f"{attempt}: {result.output}"
    assert operator.stacks() == set()


@pytest.mark.nightly
def test_an_interrupted_prune_can_be_completed(operator: Operator) -> None:
    """Press Ctrl-C while hosts drain, while stacks are deleted, and while the alarms are deployed."""
    operator.deploy()
    operator.edit({"aws.asr": [INF2], "aws.agents": ABSENT})
    with operator.uninterrupted("vad-a", "inf2"):
        operator.interrupt("prune", "draining: ")
        assert {"agents", "asr-trn1", "asr-p5"} < operator.stacks()
        operator.interrupt("prune", "delete sandbox-asr-")
        operator.interrupt("prune", "deploy sandbox-observability, without what left")
        result = operator.voice("prune", "--yes")
    assert result.exit_code == 0, result.output
    assert "no stack was removed from the file" in operator.voice("prune", "--yes").stdout
    assert operator.hosts() == {"vad-a": 1, "inf2": 1}
    assert not [alarm for alarm in operator.alarms() if "trn1" in alarm or "-p5" in alarm or "agent-" in alarm]
    assert operator.differences() == []
