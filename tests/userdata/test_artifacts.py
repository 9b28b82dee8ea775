"""Hosts download weights and compiled programs from the bucket before an engine starts; a job uploads them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.userdata import hosts
from tests.userdata.machine import Machine
from voice_userdata import PreparationJob, render_preparation_script

JOB = PreparationJob(
    "us-east-1",
    ("asr-neuron", hosts.image("asr-neuron", "c")),
    ("python3", "-m", "voice_whisper.prepare"),
    {"VOICE_MODEL": "openai/whisper-large-v2"},
    hosts.ARTIFACTS,
    "/var/cache/voice",
    accelerator="neuron",
)


def event_position(machine: Machine, text: str) -> int:
    """Return the position of the only event that contains these words."""
    (found,) = [number for number, line in enumerate(machine.transcript) if text in line]
    return found


def test_a_host_downloads_weights_before_its_engine_starts(machine: Machine, ready_port: int) -> None:
    machine.write("dev/neuron0", "")
    machine.launch(hosts.asr_neuron(ready_port))
    fetched = event_position(machine, "aws s3 sync --only-show-errors s3://artifacts/0badf00d /var/cache/voice/asr")
    assert (
        fetched
        < event_position(machine, "chown -R 10001 /var/cache/voice/asr")
        < event_position(machine, "systemctl start")
    )


def test_a_warm_pool_host_downloads_weights_before_it_is_stopped(machine: Machine, ready_port: int) -> None:
    machine.write("dev/neuron0", "")
    machine.targets("Warmed:Stopped", "Warmed:Terminated")
    machine.launch(hosts.asr_neuron(ready_port))
    assert machine.answers[0] == ("launching", "CONTINUE")
    assert event_position(machine, "aws s3 sync") < event_position(
        machine, "--lifecycle-hook-name launching --lifecycle-action-result"
    )


def test_unfinished_artifacts_are_not_used(machine: Machine, ready_port: int) -> None:
    machine.write("dev/neuron0", "")
    machine.set("fail", "aws s3 cp")
    assert machine.launch(hosts.asr_neuron(ready_port)).returncode != 0
    assert machine.reason == "artifacts: s3://artifacts/0badf00d is not complete: run the artifacts job of the fleet"
    assert not any("aws s3 sync" in line for line in machine.transcript)


def run(machine: Machine, tmp_path: Path, job: PreparationJob = JOB) -> int:
    machine.write("dev/neuron0", "")
    script = tmp_path / "job"
    script.write_text(render_preparation_script(job))
    return machine.run(script).returncode


def test_the_job_uploads_the_engine_output_and_the_marker_last(machine: Machine, tmp_path: Path) -> None:
    assert run(machine, tmp_path) == 0
    (made,) = (line for line in machine.transcript if line.startswith("docker run"))
    assert "--device=/dev/neuron0" in made
    assert made.endswith(f"{JOB.image[1]} python3 -m voice_whisper.prepare")
    assert machine.file("run/voice/prepare.env") == "VOICE_MODEL=openai/whisper-large-v2\n"
    steps = ("docker run", "aws s3 sync", "/run/voice/complete s3://artifacts/0badf00d/complete", "systemctl poweroff")
    assert sorted(steps, key=lambda step: event_position(machine, step)) == list(steps)


def test_a_failed_job_leaves_no_marker_and_no_host(machine: Machine, tmp_path: Path) -> None:
    machine.set("fail", "docker run")
    assert run(machine, tmp_path) != 0
    assert machine.reason == "prepare: asr-neuron cannot prepare its model"
    assert not any("s3" in line for line in machine.transcript)
    assert machine.transcript[-1] == "systemctl poweroff"


def test_the_command_of_a_job_may_be_a_script_of_several_lines(machine: Machine, tmp_path: Path) -> None:
    """vLLM's job starts a server, waits for it and stops it."""
    job = replace(JOB, command=("bash", "-c", "fetch 'it'\nexec \"$@\"", "prepare", "serve"))
    assert run(machine, tmp_path, job) == 0
    made = event_position(machine, "docker run")
    assert machine.transcript[made].endswith(f"{JOB.image[1]} bash -c fetch 'it'")
    assert machine.transcript[made + 1] == 'exec "$@" prepare serve'


def test_a_job_whose_script_exceeds_the_limit_of_ec2_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"user data of the artifacts job of asr-neuron is \d+ bytes, but EC2"):
        render_preparation_script(replace(JOB, command=("x" * 16_384,)))
