"""What real accounts get is what was rehearsed: `voice sandbox` passes the production files too."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis
from typer.testing import CliRunner

from ops.cli import app
from ops.rollout import follow
from ops.rotate import passwords
from ops.synthesis import templates
from sandbox.aws.cdk import ROOT, CdkError
from sandbox.aws.rehearsal import Rehearsal
from tests.blueprint.documents import edited, load_text
from tests.sandbox.fleet import Fleet, last

FILE = ROOT / "deployments/production-us-east-1.yaml"
IMAGES = ("gateway", "vad-dataplane", "whisper-engine", "asr-neuron", "telemetry")
SERVED: dict[str, object] = {
    **{f"images.{image}": f"sha256:{number}{'1' * 63}" for number, image in enumerate(IMAGES)},
    "aws.vad.machine_image": "/hosts/arm:1",
    **{f"aws.asr.{number}.machine_image": "/hosts/x86:1" for number in range(3)},
    "aws.rollout": {"checkpoint_pause_s": 0, "bake_s": 0},
}
"""The shipped file with what its first deploy is to add, and no pauses."""

pytestmark = [pytest.mark.sandbox]


def rehearsed(name: str) -> str:
    result = CliRunner().invoke(app, ["sandbox", str(ROOT / f"deployments/{name}.yaml")])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_aws_is_rehearsed_but_for_its_teardown() -> None:
    said = rehearsed("production-us-east-1")
    assert "0, 0, 0   1, 1, 1" in said
    assert "teardown is not rehearsed: a production deployment" in said


@pytest.mark.nightly
def test_a_first_step_on_cpus_is_rehearsed_too() -> None:
    said = rehearsed("small")
    assert "teardown is not rehearsed: a staging deployment" in said
    assert said.count("slots 100 %, busy 50 %     0        1       ✓") == 2


def test_azure_is_rehearsed_to_its_teardown() -> None:
    said = rehearsed("production-azure")
    assert " 0 refuse" in said
    assert "deleted, none while something needs it" in said


def baked(rehearsal: Rehearsal) -> list[str]:
    """Return the ids of three machine images, that SSM parameters name: one of ARM, and two versions of one of x86."""
    client = rehearsal.aws.client
    images = [client("ec2").register_image(Name=f"baked-{n}", RootDeviceName="/dev/xvda")["ImageId"] for n in range(3)]
    for parameter, image in zip(("/hosts/arm", "/hosts/x86", "/hosts/x86"), images, strict=True):
        client("ssm").put_parameter(Name=parameter, Value=image, Type="String", Overwrite=True)
    return images


@pytest.mark.nightly
def test_production_lives_through_what_its_first_month_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed create and its retry, a rollout that an alarm takes back, an AMI, passwords, a restore, the end."""
    monkeypatch.setattr(passwords, "SETTLES", timedelta())
    monkeypatch.setattr(follow, "POLL_S", 0.5)
    name, stack = "production-us-east-1", "production-us-east-1-asr-inf2"

    def voice(code: int, *arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result.output if code else result.stdout

    with Rehearsal(load_text(edited(SERVED, FILE.read_text()), tmp_path), real_stores=True) as rehearsal:
        for variable, value in rehearsal.aws.environment(rehearsal.home).items():
            monkeypatch.setenv(variable, value)
        client = rehearsal.aws.client
        fleet = Fleet(rehearsal, FILE, group=f"{name}-inf2", stack=stack, folder=tmp_path)
        images = baked(rehearsal)
        rehearsal.bootstrap()

        rehearsal.faults.write_text(f"{name}-edge/{last(templates(fleet.file(SERVED))[f'{name}-edge'])}\n")
        with pytest.raises(CdkError, match="a fault that a drill asked for"):
            fleet.deploy(SERVED, "--all")
        rehearsal.faults.unlink()
        fleet.deploy(SERVED, "--all")
        assert [claim.text for claim in rehearsal.claims() if not claim.holds] == []
        before = fleet.hosts()

        fleet.run_jobs(SERVED)
        alarm = f"{name}-alert-realtime-factor-high-inf2"
        client("cloudwatch").set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a drill")
        bad = SERVED | {"images.asr-neuron": f"sha256:{'b' * 64}"}
        assert "is not complete" in voice(1, "rollout", str(fleet.file(bad).source.file), "--deploy")
        fleet.run_jobs(bad)
        assert alarm in voice(1, "rollout", str(fleet.file(bad).source.file), "--deploy")
        client("cloudwatch").set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="over")
        assert fleet.status() == "UPDATE_ROLLBACK_COMPLETE"
        assert {script for _, script in fleet.hosts().values()} == {script for _, script in before.values()}

        patched = SERVED | {"aws.asr.0.machine_image": "/hosts/x86:2"}
        voice(0, "rollout", str(fleet.file(patched).source.file), "--deploy")
        assert {booted for booted, _ in fleet.hosts().values()} == {images[2]}

        assert "begun for 3 users" in voice(0, "rotate", str(FILE))
        assert "ended for 3 users" in voice(0, "rotate", str(FILE))

        with Redis(unix_socket_path=str(rehearsal.home / f"{name}-state.sock")) as store:
            store.hset("session:7", mapping={"state": "open"})
        voice(0, "restore", str(FILE), "--take", "good")
        hosts = fleet.hosts()
        file = str(fleet.file(patched | {"aws.state.restore_from": "good"}).source.file)
        voice(0, "restore", file, "--deploy")
        (group,) = client("elasticache").describe_replication_groups()["ReplicationGroups"]
        with Redis(unix_socket_path=str(rehearsal.home / f"{group['ReplicationGroupId']}.sock")) as store:
            assert store.hgetall("session:7") == {b"state": b"open"}
        assert fleet.hosts() == hosts

        report = json.loads(voice(0, "teardown", file, "--yes", "--name", name, "--json"))
        assert report["left"]["behind"] == []
        assert set(rehearsal.left()) == {"bucket", "image repository", "key", "log group", "role", "secret"}
        snapshots = {found["SnapshotName"] for found in client("elasticache").describe_snapshots()["Snapshots"]}
        assert snapshots == {"good", f"{name}-state-final", f"{group['ReplicationGroupId']}-final"}
