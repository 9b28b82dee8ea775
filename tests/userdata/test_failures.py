"""Faults that prevent a host from entering service: it abandons its launch, and logs the reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.userdata import hosts
from tests.userdata.machine import PRIMARY, Machine
from voice_userdata import HostUserDataConfig

Break = Callable[[Machine], None]


def assert_abandoned(machine: Machine, boot: HostUserDataConfig, reason: str) -> None:
    assert machine.launch(boot).returncode != 0
    assert machine.reason == reason
    assert machine.answers == [("launching", "ABANDON")]
    events = next(line for line in machine.transcript if line.startswith("aws logs put-log-events"))
    plain = "".join(letter if letter.isalnum() or letter in " .:@/_-" else " " for letter in reason)
    assert events.endswith(f"message=FAILED {plain}")
    assert not any("set-instance-health" in line for line in machine.transcript)


def unsupported_page_size(machine: Machine) -> None:
    (machine.root / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").unlink()


def no_srd(machine: Machine) -> None:
    machine.set("srd", "1")


def bql_on(machine: Machine) -> None:
    machine.write("sys/module/ena/parameters/enable_bql", "1\n")


def other_driver(machine: Machine) -> None:
    machine.set("driver", "virtio_net")


def unknown_interface(machine: Machine) -> None:
    machine.metadata("mac", "02:00:00:00:00:99")


def refused_ring(machine: Machine) -> None:
    machine.set("fail", "ethtool -G")


def refused_mtu(machine: Machine) -> None:
    machine.set("fail", "ip link set")


def no_networkd(machine: Machine) -> None:
    machine.set("network-file", "n/a")


def deaf_networkd(machine: Machine) -> None:
    machine.set("fail", "networkctl reload")


def short_of_pages(machine: Machine) -> None:
    machine.set("huge-limit", "20000")


def no_docker(machine: Machine) -> None:
    machine.set("fail", "docker info")


def no_pull(machine: Machine) -> None:
    machine.set("fail", "docker pull -q .*/telemetry@")


def no_secret(machine: Machine) -> None:
    machine.set("fail", "secretsmanager")


def no_host(machine: Machine) -> None:
    machine.set("fail", "ssm")


def other_field(machine: Machine) -> None:
    machine.set("secret", '{"token": "x"}')


def empty_password(machine: Machine) -> None:
    machine.set("secret", '{"password": ""}')


def sick_telemetry(machine: Machine) -> None:
    machine.set("health", "unhealthy")


def no_group(machine: Machine) -> None:
    machine.targets()


UNREADABLE_METADATA = f"cannot read password of {hosts.SECRET_ARN}"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (unsupported_page_size, "huge_pages: this kernel does not support pages of 2 MiB"),
        (
            short_of_pages,
            (
                "huge_pages: 24576 pages of 2 MiB were requested, but the kernel reserved 20000: reserve them on the "
                "kernel command line of the image"
            ),
        ),
        (unknown_interface, "start: no network interface has the address 02:00:00:00:00:99"),
        (no_networkd, "mtu: networkd does not configure ens5: its MTU would be reset when the link goes down"),
        (deaf_networkd, "mtu: networkd cannot reload its configuration"),
        (refused_mtu, "mtu: ens5 does not support an MTU of 3498"),
        (other_driver, "af_xdp: native XDP is only supported with ena, not with driver: virtio_net"),
        (refused_ring, "af_xdp: ens5 did not accept rx 256"),
        (bql_on, "ena_express: byte queue limits are on: bake 'options ena enable_bql=0'"),
        (no_srd, "ena_express: ena_srd_mode is '1', not 3: see EnaSrdSpecification"),
        (no_docker, "runtime: Docker does not respond"),
        (no_pull, f"images: cannot pull {hosts.image('telemetry', 'b')}"),
        (no_host, "state_secret: cannot read /voice/production/state-host"),
        (no_secret, f"state_secret: {UNREADABLE_METADATA}"),
        (other_field, f"state_secret: {UNREADABLE_METADATA}"),
        (empty_password, f"state_secret: {UNREADABLE_METADATA}"),
        (sick_telemetry, "serve: not ready after 60 s: telemetry"),
        (no_group, "serve: not in an Auto Scaling group"),
    ],
)
def test_a_failing_vad_host_aborts_its_launch(machine: Machine, ready_port: int, damage: Break, reason: str) -> None:
    damage(machine)
    assert_abandoned(machine, hosts.vad(ready_port), reason)


REFUSED_SETTINGS = "docker: Error response from daemon: invalid CapAdd: unknown capability"


def test_a_container_that_docker_cannot_start_ends_the_wait_with_the_docker_error(
    machine: Machine, silent_port: int
) -> None:
    machine.set("exit-status", "125")
    machine.set("restarts", "5")
    machine.set("journal", REFUSED_SETTINGS)
    assert_abandoned(machine, hosts.vad(silent_port), f"serve: vad-dataplane cannot be started; {REFUSED_SETTINGS}")
    assert sum(line == "sleep 5" for line in machine.transcript) == 0


def test_a_crashing_container_is_restarted_until_the_timeout(machine: Machine, silent_port: int) -> None:
    machine.set("exit-status", "1")
    machine.set("restarts", "9")
    machine.set("journal", "no route to the store")
    assert_abandoned(
        machine, hosts.vad(silent_port), "serve: not ready after 60 s: vad-dataplane; no route to the store"
    )


def no_secondary(machine: Machine) -> None:
    machine.metadata("network/interfaces/macs.listing", f"{PRIMARY}/")


def other_kernel(machine: Machine) -> None:
    machine.write("etc/voice/vfio-write-combining", "6.1.0-older\n")


def no_noiommu(machine: Machine) -> None:
    (machine.root / "sys/module/vfio/parameters/enable_unsafe_noiommu_mode").unlink()


def no_bind(machine: Machine) -> None:
    machine.set("no-bind")


def no_vfio_group(machine: Machine) -> None:
    (machine.root / "dev/vfio/noiommu-0").unlink()


def no_registration(machine: Machine) -> None:
    machine.set("fail", "elbv2 register-targets")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (no_secondary, "vfio: no network interface has device number 1"),
        (
            other_kernel,
            "vfio: no vfio-pci with write combining is baked for kernel 6.1.0-test (/etc/voice/vfio-write-combining)",
        ),
        (no_noiommu, "vfio: the kernel has no CONFIG_VFIO_NOIOMMU"),
        (no_bind, "vfio: ens6 (0000:00:06.0) did not bind to vfio-pci"),
        (no_vfio_group, "vfio: 0000:00:06.0 has no group in /dev/vfio"),
        (no_registration, f"serve: cannot register with {hosts.TARGET_GROUP}"),
    ],
)
def test_a_failing_vfio_host_aborts_its_launch(machine: Machine, ready_port: int, damage: Break, reason: str) -> None:
    machine.add_secondary_interface()
    damage(machine)
    assert_abandoned(machine, hosts.vad_vfio(ready_port), reason)


def test_a_host_with_too_little_memory_aborts(tmp_path: Path, ready_port: int) -> None:
    """Numbers of the seed file: 48 GiB of huge pages on a c8g.4xlarge with 32 GiB."""
    machine = Machine(tmp_path, ready_port, memory_gib=32)
    reason = "huge_pages: 24576 pages of 2 MiB are 49152 MiB, over 80 % of the host's 32768 MiB"
    assert_abandoned(machine, hosts.vad(ready_port), reason)
    assert not any("nr_hugepages" in line for line in machine.transcript)


def test_too_many_queues_for_an_older_driver_are_reported(machine: Machine, ready_port: int) -> None:
    boot = hosts.vad(ready_port)
    assert boot.data_path is not None
    boot = replace(boot, data_path=replace(boot.data_path, rx_queues=8))
    assert_abandoned(machine, boot, "af_xdp: ens5 has 4 queues for XDP, but 8 are required")


def test_a_newer_driver_supports_every_queue(machine: Machine, ready_port: int) -> None:
    boot = hosts.vad(ready_port)
    assert boot.data_path is not None
    machine.set("version", "2.17.1g")
    assert machine.launch(replace(boot, data_path=replace(boot.data_path, rx_queues=8))).returncode == 0
    assert '"zero_copy": true' in machine.file("run/voice/data-path.json")


@pytest.mark.parametrize(
    ("boot", "reason"),
    [
        (hosts.asr_neuron, "neuron: no /dev/neuron* device exists"),
        (hosts.asr_gpu, "instance_store: the host has no NVMe instance store"),
    ],
)
def test_an_asr_host_without_its_hardware_aborts(
    machine: Machine, ready_port: int, boot: Callable[[int], HostUserDataConfig], reason: str
) -> None:
    assert_abandoned(machine, boot(ready_port), reason)


@pytest.mark.parametrize(("kind", "tool"), [("neuron", "neuron-ls"), ("gpu", "nvidia-smi")])
def test_an_unusable_accelerator_aborts_the_launch(machine: Machine, ready_port: int, kind: str, tool: str) -> None:
    machine.write("dev/neuron0", "")
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage\n")
    machine.set("fail", tool)
    boot = {"neuron": hosts.asr_neuron, "gpu": hosts.asr_gpu}[kind](ready_port)
    device = {"neuron": "Neuron device", "gpu": "GPU"}[kind]
    assert_abandoned(machine, boot, f"{kind}: {tool} finds no usable {device}")


def test_a_container_that_never_listens_aborts_the_launch(tmp_path: Path, silent_port: int) -> None:
    machine = Machine(tmp_path, silent_port)
    assert_abandoned(machine, hosts.vad(silent_port), "serve: not ready after 60 s: vad-dataplane")
    waits = [line for line in machine.transcript if line == "sleep 5"]
    heartbeats = [line for line in machine.transcript if "record-lifecycle-action-heartbeat" in line]
    assert len(waits) == 12
    assert len(heartbeats) == 2 + 60 // 15


def test_transient_failures_are_retried(machine: Machine, ready_port: int) -> None:
    machine.set("fail-once", "docker login\ndocker pull\nget-secret-value\ncomplete-lifecycle-action")
    assert machine.launch(hosts.vad(ready_port)).returncode == 0
    assert machine.answers[-2:] == [("launching", "CONTINUE"), ("terminating", "CONTINUE")]
    assert machine.transcript.count("sleep 2") == 4


def test_a_missing_tool_is_installed(machine: Machine, ready_port: int) -> None:
    machine.remove_command("aws")
    machine.set("dnf-gives", "aws")
    (machine.root.parent / "bin/dnf").symlink_to(".fake")
    assert machine.launch(hosts.vad(ready_port)).returncode == 0
    assert "dnf install -y -q awscli-2" in machine.transcript


def test_a_tool_that_cannot_be_installed_is_reported(machine: Machine, ready_port: int) -> None:
    machine.remove_command("ethtool")
    assert_abandoned(
        machine,
        hosts.vad(ready_port),
        "need ethtool ethtool: cannot install ethtool: bake it into the image",
    )


def test_failure_after_a_reboot_in_service_makes_the_host_unhealthy(machine: Machine, ready_port: int) -> None:
    """No lifecycle action is pending then, so ABANDON has no effect."""
    machine.launch(hosts.vad(ready_port))
    machine.power_cycle()
    machine.targets("InService")
    machine.set("no-action")
    machine.set("srd", "0")
    assert machine.boot().returncode != 0
    (ill,) = (line for line in machine.transcript if "set-instance-health" in line)
    assert ill.endswith("--instance-id i-0abc --health-status Unhealthy --no-should-respect-grace-period")


def test_a_host_reports_itself_unhealthy_until_aws_responds(machine: Machine, ready_port: int) -> None:
    """AWS is unreachable when the host fails. Otherwise, it would remain in service without serving anyone."""
    machine.launch(hosts.vad(ready_port))
    machine.power_cycle()
    machine.targets("InService")
    machine.set("srd", "0")
    calls = ["complete-lifecycle-action"] * 5 + ["set-instance-health"] * 6
    machine.set("fail-once", "\n".join(calls))
    assert machine.boot().returncode != 0
    told = [index for index, line in enumerate(machine.transcript) if "set-instance-health" in line]
    assert len(told) == 7
    assert machine.transcript.count("sleep 30") == 6
    assert machine.log.count("voice-host: Auto Scaling is unreachable: next try in 30 s") == 6
    assert machine.transcript[told[-1]] == machine.transcript[-1]


def test_unforeseen_failures_are_reported(machine: Machine, ready_port: int) -> None:
    machine.set("fail", "systemctl mask --now ecs")
    assert_abandoned(machine, hosts.vad(ready_port), "runtime: systemctl mask --now ecs")


def test_reporting_a_reason_is_retried(machine: Machine, ready_port: int) -> None:
    refused_ring(machine)
    machine.set("fail-once", "put-log-events")
    assert_abandoned(machine, hosts.vad(ready_port), "af_xdp: ens5 did not accept rx 256")
    assert sum(line.startswith("aws logs put-log-events") for line in machine.transcript) == 2
