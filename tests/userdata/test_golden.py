"""The complete lifecycle of each kind of host, from user data to termination, matches golden files."""

from tests.userdata import hosts
from tests.userdata.machine import Machine, check_golden


def test_vad(machine: Machine, ready_port: int) -> None:
    assert machine.launch(hosts.vad(ready_port)).returncode == 0
    assert machine.answers == [("launching", "CONTINUE"), ("terminating", "CONTINUE")]
    check_golden("vad", machine.report())


def test_vad_vfio(machine: Machine, ready_port: int) -> None:
    machine.add_secondary_interface()
    assert machine.launch(hosts.vad_vfio(ready_port)).returncode == 0
    check_golden("vad-vfio", machine.report())


def test_asr_neuron(machine: Machine, ready_port: int) -> None:
    for number in range(3):
        machine.write(f"dev/neuron{number}", "")
    assert machine.launch(hosts.asr_neuron(ready_port)).returncode == 0
    check_golden("asr-neuron", machine.report())


def test_asr_gpu_with_two_nvme_disks(machine: Machine, ready_port: int) -> None:
    machine.write("sys/block/nvme0n1/device/model", "Amazon Elastic Block Store              \n")
    for disk in ("nvme1n1", "nvme2n1"):
        machine.write(f"sys/block/{disk}/device/model", "Amazon EC2 NVMe Instance Storage        \n")
    assert machine.launch(hosts.asr_gpu(ready_port)).returncode == 0
    check_golden("asr-gpu-two-disks", machine.report())


def test_warm_pool(machine: Machine, ready_port: int) -> None:
    """The host is prepared and stopped; its next boot serves without pulling images."""
    boot = hosts.asr_neuron(ready_port)
    machine.write("dev/neuron0", "")
    machine.targets("Warmed:Stopped", "Warmed:Stopped", "Warmed:Terminated")
    machine.launch(boot)
    prepared = machine.report()
    assert not any(line.startswith("systemctl start") for line in machine.transcript)
    assert machine.answers[0] == ("launching", "CONTINUE")

    machine.power_cycle()
    machine.targets("InService", "Terminated")
    machine.boot()
    assert not any(line.startswith(("docker pull", "docker login")) for line in machine.transcript)
    assert any(line.startswith("systemctl start") for line in machine.transcript)
    check_golden("warm-pool", f"== first boot\n{prepared}== second boot\n{machine.report()}")
