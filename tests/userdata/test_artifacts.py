"""Weights and compiled programs come from the bucket before an engine starts, and a job leaves them there."""

from pathlib import Path

from tests.userdata import hosts
from tests.userdata.machine import Machine
from userdata import Preparation, render_preparation

JOB = Preparation(
    "us-east-1",
    ("asr-neuron", hosts.image("asr-neuron", "c")),
    ("python3", "-m", "voice_whisper.prepare"),
    {"VOICE_MODEL": "openai/whisper-large-v2"},
    hosts.ARTIFACTS,
    "/var/cache/voice",
    accelerator="neuron",
)


def at(machine: Machine, words: str) -> int:
    """Return when the machine did what these words are of, and fail unless it did so once."""
    (found,) = [number for number, line in enumerate(machine.transcript) if words in line]
    return found


def test_a_host_has_its_weights_before_its_engine_starts(machine: Machine, ready_port: int) -> None:
    machine.write("dev/neuron0", "")
    machine.launch(hosts.asr_neuron(ready_port))
    fetched = at(machine, "aws s3 sync --only-show-errors s3://artifacts/0badf00d /var/cache/voice/asr")
    assert fetched < at(machine, "chown -R 10001 /var/cache/voice/asr") < at(machine, "systemctl start")


def test_a_host_of_a_warm_pool_has_them_before_it_is_stopped(machine: Machine, ready_port: int) -> None:
    machine.write("dev/neuron0", "")
    machine.targets("Warmed:Stopped", "Warmed:Terminated")
    machine.launch(hosts.asr_neuron(ready_port))
    assert machine.answers[0] == ("launching", "CONTINUE")
    assert at(machine, "aws s3 sync") < at(machine, "--lifecycle-hook-name launching --lifecycle-action-result")


def test_what_no_job_has_finished_is_not_taken(machine: Machine, ready_port: int) -> None:
    machine.write("dev/neuron0", "")
    machine.set("fail", "aws s3 cp")
    assert machine.launch(hosts.asr_neuron(ready_port)).returncode != 0
    assert machine.reason == "artifacts: s3://artifacts/0badf00d is not complete: run the job of the fleet"
    assert not any("aws s3 sync" in line for line in machine.transcript)


def run(machine: Machine, tmp_path: Path) -> int:
    machine.write("dev/neuron0", "")
    script = tmp_path / "job"
    script.write_text(render_preparation(JOB))
    return machine.run(script).returncode


def test_the_job_leaves_what_the_engine_made_and_its_marker_last(machine: Machine, tmp_path: Path) -> None:
    assert run(machine, tmp_path) == 0
    (made,) = (line for line in machine.transcript if line.startswith("docker run"))
    assert "--device=/dev/neuron0" in made
    assert made.endswith(f"{JOB.image[1]} python3 -m voice_whisper.prepare")
    assert machine.file("run/voice/prepare.env") == "VOICE_MODEL=openai/whisper-large-v2\n"
    steps = ("docker run", "aws s3 sync", "/run/voice/complete s3://artifacts/0badf00d/complete", "systemctl poweroff")
    assert sorted(steps, key=lambda step: at(machine, step)) == list(steps)


def test_a_job_that_fails_leaves_no_marker_and_no_host(machine: Machine, tmp_path: Path) -> None:
    machine.set("fail", "docker run")
    assert run(machine, tmp_path) != 0
    assert machine.reason == "prepare: asr-neuron cannot prepare its model"
    assert not any("s3" in line for line in machine.transcript)
    assert machine.transcript[-1] == "systemctl poweroff"
