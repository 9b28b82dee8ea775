"""Image Builder's steps, run in a fake root folder, prepare what a boot expects."""

from pathlib import Path

import pytest

from tests.userdata import hosts
from tests.userdata.hosts import image
from tests.userdata.machine import Machine
from voice_userdata import HostImageConfig, HugePages, render_bake_script

BAKE = HostImageConfig("us-east-1", {"vad-dataplane": image("vad-dataplane", "a")}, HugePages(2, 100), "64788ef")


@pytest.fixture
def builder(machine: Machine) -> Machine:
    for name in ("dnf", "git", "grubby"):
        machine.add_command(name)
    machine.write("boot/config-6.1.0-test", "CONFIG_VFIO_NOIOMMU=y\n")
    script = machine.root / "opt/amzn-drivers/userspace/dpdk/enav2-vfio-patch/get-vfio-with-wc.sh"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/bash\n")
    script.chmod(0o755)
    return machine


def run(machine: Machine, tmp_path: Path, bake: HostImageConfig, *steps: str) -> str:
    """Run steps and return the reason of the first failure."""
    for step in steps:
        script = tmp_path / f"{step}.sh"
        script.write_text(render_bake_script(bake, step))  # type: ignore[arg-type]
        done = machine.run(script)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    return ""


def test_a_baked_image_contains_images_huge_pages_and_the_vfio_marker(builder: Machine, tmp_path: Path) -> None:
    assert run(builder, tmp_path, BAKE, "bake", "check") == ""
    assert builder.file("etc/voice/vfio-write-combining") == "6.1.0-test\n"
    calls = builder.transcript
    assert f"docker pull -q {image('vad-dataplane', 'a')}" in calls
    assert "grubby --update-kernel=ALL --args default_hugepagesz=2M hugepagesz=2M hugepages=100" in calls
    assert any(call.endswith("checkout -q 64788ef") for call in calls)


def test_baked_images_are_not_pulled_at_boot(builder: Machine, tmp_path: Path, ready_port: int) -> None:
    boot = hosts.vad(ready_port)
    containers = {each.name: each.image_uri for each in boot.containers}
    assert run(builder, tmp_path, HostImageConfig("us-east-1", containers), "bake") == ""
    builder.power_cycle()
    assert builder.launch(boot).returncode == 0
    booted = builder.transcript
    assert any(line.startswith("systemctl start") for line in booted)
    assert not any(line.startswith(("docker pull", "docker login", "dnf")) for line in booted)


def test_an_image_without_its_containers_is_refused(builder: Machine, tmp_path: Path) -> None:
    assert run(builder, tmp_path, BAKE, "check") == f"check: {image('vad-dataplane', 'a')} is not on the disk"


def test_a_kernel_without_no_iommu_mode_is_refused(builder: Machine, tmp_path: Path) -> None:
    builder.write("boot/config-6.1.0-test", "# CONFIG_VFIO_NOIOMMU is not set\n")
    assert run(builder, tmp_path, BAKE, "bake") == "bake: kernel 6.1.0-test has no CONFIG_VFIO_NOIOMMU"


def test_an_accelerators_image_has_neither_pages_nor_vfio(builder: Machine, tmp_path: Path) -> None:
    engine = HostImageConfig("us-east-1", {"engine": image("asr-neuron", "c")})
    assert run(builder, tmp_path, engine, "bake", "check") == ""
    assert not any(call.startswith(("grubby", "git", "modprobe")) for call in builder.transcript)
