"""Draining, spot notices, reboots and warm pools."""

import json
from dataclasses import replace

import pytest

from tests.nonempty import nonempty
from tests.userdata import hosts
from tests.userdata.hosts import PASSWORD
from tests.userdata.machine import Machine, check_golden
from voice_userdata import HOST_IAM_ACTIONS, CommandReadinessCheck, PortReadinessCheck


def drain_transcript(machine: Machine) -> str:
    """Return the transcript from the start of the drain."""
    lines = machine.transcript
    return "\n".join(lines[lines.index(next(line for line in lines if "# draining" in line)) :]) + "\n"


def test_drain_sends_heartbeats_until_the_sessions_have_ended(machine: Machine, ready_port: int) -> None:
    machine.set("drain-polls", "7")
    machine.launch(hosts.vad(ready_port))
    assert "# drained in 35 s" in machine.transcript
    assert machine.answers[-1] == ("terminating", "CONTINUE")
    check_golden("drain", drain_transcript(machine))


def test_telemetry_ends_after_the_other_containers(machine: Machine, ready_port: int) -> None:
    machine.set("drain-polls", "2")
    machine.launch(hosts.vad(ready_port))
    lines = machine.transcript
    stops = [index for index, line in enumerate(lines) if line.startswith("systemctl stop")]
    assert "telemetry" not in lines[stops[0]]
    assert "telemetry" in lines[stops[1]]
    assert any("is-active" in line for line in lines[stops[0] : stops[1]])


def test_vllm_is_stopped_when_our_engine_has_ended(machine: Machine, ready_port: int) -> None:
    """vLLM rejects requests as soon as it is stopped, but the last sessions of the engine need it."""
    machine.set("drain-polls", "3")
    machine.launch(hosts.asr_vllm(ready_port))
    lines = [line for line in machine.transcript if line.startswith(("systemctl stop", "systemctl is-active"))]
    engine, vllm = "voice-container@engine", "voice-container@asr-vllm"
    assert lines[0] == f"systemctl stop --no-block {engine}"
    second = lines.index(f"systemctl stop --no-block {vllm}")
    assert lines[1:second] == [f"systemctl is-active {engine}"] * 4
    assert lines[second + 1 : -1] == [f"systemctl is-active {vllm}"] * 4
    assert lines[-1].startswith("systemctl stop")
    assert "telemetry" in lines[-1]
    assert "# drained in 30 s" in machine.transcript


def test_containers_that_are_stopped_in_sequence_share_one_timeout(machine: Machine, ready_port: int) -> None:
    machine.set("drain-polls", "1000")
    machine.launch(hosts.asr_vllm(ready_port))
    assert "# drained in 120 s" in machine.transcript


def test_the_host_waits_for_the_network_before_requesting_metadata(machine: Machine, ready_port: int) -> None:
    machine.launch(hosts.vad(ready_port))
    unit = machine.file("etc/systemd/system/voice-host.service").splitlines()
    assert {"Wants=network-online.target", "After=network-online.target"} <= set(unit)


def test_drain_ends_after_its_timeout(machine: Machine, ready_port: int) -> None:
    machine.set("drain-polls", "1000")
    machine.launch(hosts.vad(ready_port))
    assert "# drained in 120 s" in machine.transcript
    assert machine.answers[-1] == ("terminating", "CONTINUE")


def test_drain_continues_without_heartbeats(machine: Machine, ready_port: int) -> None:
    """If Auto Scaling is unavailable, the drain continues without heartbeats."""
    machine.set("drain-polls", "7")
    machine.set("fail", "record-lifecycle-action-heartbeat")
    machine.launch(hosts.vad(ready_port))
    assert "# cannot send a heartbeat for terminating" in machine.transcript
    assert "# drained in 35 s" in machine.transcript
    assert machine.answers[-1] == ("terminating", "CONTINUE")


def test_end_of_the_drain_is_reported_until_auto_scaling_responds(machine: Machine, ready_port: int) -> None:
    machine.set("fail-once", "complete-lifecycle-action .*terminating")
    machine.launch(hosts.vad(ready_port))
    assert machine.answers.count(("terminating", "CONTINUE")) == 2
    assert "# terminating: CONTINUE" in machine.transcript


def test_a_hook_during_a_spot_drain_is_completed_afterwards(machine: Machine, ready_port: int) -> None:
    machine.metadata("spot/instance-action", '{"action": "terminate", "time": "2026-11-21T12:00:00Z"}')
    machine.targets("InService", "InService", "Terminated")
    machine.set("drain-polls", "7")
    machine.launch(hosts.vad(ready_port))
    lines = machine.transcript
    assert lines.count("# draining for at most 100 s") == 1
    assert not any("draining for at most 120 s" in line for line in lines)
    assert lines.index("# drained in 35 s") < lines.index("# terminating: CONTINUE")


def test_containers_are_stopped_within_the_drain_timeout(machine: Machine, ready_port: int) -> None:
    machine.launch(hosts.vad(ready_port))
    unit = machine.file("etc/systemd/system/voice-container@.service").splitlines()
    assert "ExecStop=docker stop -t 120 %i" in unit
    assert "TimeoutStopSec=150" in unit


def test_drain_first_deregisters_the_host_from_its_target_group(machine: Machine, ready_port: int) -> None:
    machine.add_secondary_interface()
    machine.launch(hosts.vad_vfio(ready_port))
    first, second = drain_transcript(machine).splitlines()[1:3]
    assert first.startswith("aws elbv2 deregister-targets")
    assert first.endswith("Id=10.0.2.9")
    assert second.startswith("systemctl stop")


def test_ena_express_is_enabled_on_the_primary_interface_with_vfio(machine: Machine, ready_port: int) -> None:
    machine.add_secondary_interface()
    machine.launch(replace(hosts.vad_vfio(ready_port), ena_express=True, mtu=8900))
    assert "ethtool -S ens5" in machine.transcript
    assert "VOICE_INTERFACE=0000:00:06.0" in machine.file("run/voice/vad-dataplane.env")
    assert machine.answers[0] == ("launching", "CONTINUE")


def test_a_failed_drain_does_not_abandon_a_host_in_service(machine: Machine, ready_port: int) -> None:
    machine.set("fail", "systemctl stop")
    machine.launch(hosts.vad(ready_port))
    assert ("launching", "ABANDON") not in machine.answers
    assert not any("FAILED" in line or "set-instance-health" in line for line in machine.transcript)


def test_the_host_calls_only_the_actions_that_its_role_needs(machine: Machine, ready_port: int) -> None:
    machine.add_secondary_interface()
    machine.set("fail", "register-targets")
    machine.set("no-action")
    machine.set("drain-polls", "7")
    machine.launch(hosts.vad_vfio(ready_port))
    calls = {" ".join(line.split()[1:3]) for line in machine.transcript if line.startswith("aws ")}
    services = {"elbv2": "elasticloadbalancing"}
    actions = {
        f"{services.get(service, service)}:{operation.title().replace('-', '')}"
        for service, operation in (call.split() for call in calls)
    }
    actions.discard("ecr:GetLoginPassword")  # the command of ecr:GetAuthorizationToken
    assert "autoscaling:SetInstanceHealth" in actions
    assert actions <= set(HOST_IAM_ACTIONS)


def test_spot_notice_drains_within_the_notice(machine: Machine, ready_port: int) -> None:
    machine.metadata("spot/instance-action", '{"action": "terminate", "time": "2026-11-21T12:00:00Z"}')
    machine.targets("InService", "InService", "InService", "Terminated")
    machine.set("drain-polls", "1000")
    machine.launch(hosts.vad(ready_port))
    assert "# draining for at most 100 s" in machine.transcript
    assert sum("# draining" in line for line in machine.transcript) == 1
    check_golden("spot", drain_transcript(machine))


def test_a_second_boot_does_not_change_the_disk_and_serves(machine: Machine, ready_port: int) -> None:
    boot = hosts.asr_gpu(ready_port)
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage\n")
    machine.launch(boot)
    machine.power_cycle()
    machine.set("no-action")
    machine.targets("InService", "Terminated")
    assert machine.boot().returncode == 0
    assert not any(line.startswith(("mkfs", "mdadm", "docker pull", "dnf")) for line in machine.transcript)
    assert any(line.startswith("systemctl start") for line in machine.transcript)
    check_golden("second-boot", machine.report())


def test_a_repeated_boot_is_idempotent(machine: Machine, ready_port: int) -> None:
    """systemd restarts the unit after its process was killed."""
    machine.add_secondary_interface()
    machine.launch(replace(hosts.vad_vfio(ready_port), containers=hosts.vad(ready_port).containers))
    before = (machine.root / "run/voice/vad-dataplane.env").read_text()
    (machine.fake / "transcript").unlink()
    machine.targets("InService", "Terminated")
    assert machine.boot().returncode == 0
    assert (machine.root / "run/voice/vad-dataplane.env").read_text() == before
    assert not any(line.startswith(("mount ", "ip ", "docker pull")) for line in machine.transcript)
    assert not any("unbind" in line or "nr_hugepages" in line for line in machine.transcript)


def test_instance_store_is_recreated_after_a_stop(machine: Machine, ready_port: int) -> None:
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage\n")
    machine.launch(hosts.asr_gpu(ready_port))
    machine.power_cycle()
    (machine.fake / "label").unlink()
    machine.targets("InService", "Terminated")
    machine.boot()
    assert "mkfs.xfs -q -f -K -L voice-store /dev/nvme1n1" in machine.transcript


def test_running_warm_pool_starts_containers_when_the_host_leaves_it(machine: Machine, ready_port: int) -> None:
    machine.targets("Warmed:Running", "Warmed:Running", "InService", "InService", "Terminated")
    machine.launch(hosts.vad(ready_port))
    assert machine.transcript.count("systemctl restart --no-block voice-host") == 1


def test_return_to_the_warm_pool_drains(machine: Machine, ready_port: int) -> None:
    machine.targets("InService", "InService", "Warmed:Stopped", "Warmed:Stopped", "Warmed:Terminated")
    machine.launch(hosts.vad(ready_port))
    assert sum("# draining" in line for line in machine.transcript) == 1
    assert ("terminating", "CONTINUE") in machine.answers


def test_a_container_runs_with_the_options_of_its_unit(machine: Machine, ready_port: int) -> None:
    machine.launch(hosts.vad(ready_port))
    machine.run(machine.installed_script, "run", "vad-dataplane")
    arguments = machine.file("run/voice/vad-dataplane.arguments").split("\n")[:-1]
    assert machine.transcript[-1] == "docker run " + " ".join(arguments)


def test_environment_files_contain_the_declared_variables(machine: Machine, ready_port: int) -> None:
    boot = hosts.vad(ready_port)
    machine.launch(boot)
    for container in nonempty(boot.containers):
        lines = machine.file(f"run/voice/{container.name}.env").splitlines()
        assert {line.partition("=")[0] for line in lines} == boot.list_variable_names(container)


def test_the_password_reaches_only_its_files(machine: Machine, ready_port: int) -> None:
    finished = machine.launch(hosts.vad(ready_port))
    for name in ("vad-dataplane", "telemetry"):
        file = machine.root / "run/voice/secrets" / name
        assert file.read_text() == hosts.PASSWORD
        assert file.stat().st_mode & 0o777 == 0o600
    output = finished.stdout + finished.stderr + machine.report() + "\n".join(machine.log)
    assert hosts.PASSWORD not in output
    holders = [
        path.name
        for path in machine.root.rglob("*")
        if path.is_file() and hosts.PASSWORD in path.read_text(errors="replace")
    ]
    assert sorted(holders) == ["telemetry", "vad-dataplane"]


def test_a_broken_secret_is_not_shown(machine: Machine, ready_port: int) -> None:
    machine.set("secret", f'{{"password": {hosts.PASSWORD}}}')
    finished = machine.launch(hosts.vad(ready_port))
    assert finished.returncode != 0
    assert hosts.PASSWORD not in finished.stdout + finished.stderr + machine.report() + "\n".join(machine.log)


def test_durations_of_start_phases_are_recorded(machine: Machine, ready_port: int) -> None:
    """Each phase has the duration of its slowest process, and time not explained by the log is warm-up."""
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage        \n")
    log = ["(rank 0) Loading weights took 2.25 seconds", "(rank 1) Loading weights took 3.5 seconds", "Graphs took 1 s"]
    machine.set("logs-engine", "\n".join(log))
    machine.set("health", "starting\nstarting\nhealthy")
    machine.launch(hosts.asr_gpu(ready_port))
    phases = dict(line.split() for line in machine.file("run/voice/cold-start/phases").splitlines())
    assert phases == {"pull": "0", "weights": "3.5", "graphs": "1", "warm-up": "5.5"}


def test_unreadable_log_does_not_stop_a_start(machine: Machine, ready_port: int) -> None:
    machine.write("dev/neuron0", "")
    machine.set("fail", "docker logs")
    machine.launch(hosts.asr_neuron(ready_port))
    assert machine.answers[0] == ("launching", "CONTINUE")
    assert any("the phases of the start are unknown" in line for line in machine.log)


@pytest.mark.parametrize(("health", "is_replaced"), [("healthy", False), ("healthy\nunhealthy", True)])
def test_a_host_with_a_dead_engine_drains_and_is_replaced(
    machine: Machine, ready_port: int, health: str, is_replaced: bool
) -> None:
    """An engine that has lost its accelerator restarts repeatedly, which EC2's health check does not detect."""
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage\n")
    boot = hosts.asr_gpu(ready_port)
    engine, *others = boot.containers
    engine = replace(engine, health=CommandReadinessCheck("check"))
    others = [replace(other, health=PortReadinessCheck(ready_port)) for other in others]
    machine.set("health", health)
    machine.set("drain-polls", "2")
    machine.targets(*["InService"] * 8, "Terminated")
    machine.launch(replace(boot, containers=(engine, *others), hooks=replace(boot.hooks, ready_budget_s=20)))
    ill = [index for index, line in enumerate(machine.transcript) if "set-instance-health" in line]
    assert bool(ill) is is_replaced
    assert machine.answers[-1] == ("terminating", "CONTINUE")
    if is_replaced:
        assert "--health-status Unhealthy --no-should-respect-grace-period" in machine.transcript[ill[0]]
        assert any("not ready for 20 s: engine" in line for line in machine.transcript[: ill[0]])
        assert any("drained in 10 s" in line for line in machine.transcript[: ill[0]])


def test_a_host_with_a_dead_engine_reports_it_until_aws_responds(machine: Machine, ready_port: int) -> None:
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage\n")
    boot = hosts.asr_gpu(ready_port)
    engine, *others = boot.containers
    others = [replace(other, health=PortReadinessCheck(ready_port)) for other in others]
    machine.set("health", "healthy\nunhealthy")
    machine.set("fail-once", "\n".join(["set-instance-health"] * 7))
    machine.targets(*["InService"] * 40, "Terminated")
    containers = (replace(engine, health=CommandReadinessCheck("check")), *others)
    machine.launch(replace(boot, containers=containers, hooks=replace(boot.hooks, ready_budget_s=20)))
    told = [index for index, line in enumerate(machine.transcript) if "set-instance-health" in line]
    assert len(told) == 8
    assert machine.transcript[told[-2] : told[-1]].count("sleep 5") == 6
    assert machine.answers[-1] == ("terminating", "CONTINUE")


def test_a_dead_data_plane_on_vfio_leaves_its_target_group_and_is_replaced(machine: Machine, ready_port: int) -> None:
    """Its group does not use the load balancer's health checks, which cannot reach an interface used by DPDK."""
    machine.add_secondary_interface()
    boot = hosts.vad_vfio(ready_port)
    plane, *others = boot.containers
    plane = replace(plane, health=CommandReadinessCheck("check"))
    others = [replace(other, health=PortReadinessCheck(ready_port)) for other in others]
    machine.set("health", "healthy\nunhealthy")
    machine.targets(*["InService"] * 8, "Terminated")
    machine.launch(replace(boot, containers=(plane, *others), hooks=replace(boot.hooks, ready_budget_s=20)))
    told = [line for line in machine.transcript if "deregister-targets" in line or "set-instance-health" in line]
    assert ["deregister-targets" in line for line in told] == [True, False]
    assert machine.answers[-1] == ("terminating", "CONTINUE")


def test_a_rotated_password_reaches_running_containers(machine: Machine, ready_port: int) -> None:
    machine.launch(hosts.vad(ready_port))
    file = machine.root / "run/voice/secrets/vad-dataplane"
    before, rotated = file.stat(), PASSWORD[::-1]
    machine.set("secret", json.dumps({"password": rotated}))
    assert machine.run(machine.installed_script, "reread_state").returncode == 0
    assert machine.file("run/voice/secrets/vad-dataplane") == machine.file("run/voice/secrets/telemetry") == rotated
    # A container mounts the file itself, not a later one of the same name.
    assert (file.stat().st_ino, file.stat().st_mode) == (before.st_ino, before.st_mode)


def test_running_containers_use_a_restored_store(machine: Machine, ready_port: int) -> None:
    machine.launch(hosts.vad(ready_port))
    assert machine.file("run/voice/state/host").strip() == "master.production.use1.cache.amazonaws.com"
    machine.set("state-host", "master.production-1a2b3c.use1.cache.amazonaws.com")
    for failing in ("nothing", "ssm"):  # without a response the current state remains
        machine.set("fail", failing)
        assert machine.run(machine.installed_script, "reread_state").returncode == 0
        assert machine.file("run/voice/state/host").strip() == "master.production-1a2b3c.use1.cache.amazonaws.com"
    assert (machine.root / "run/voice/state/host").stat().st_mode & 0o777 == 0o644
