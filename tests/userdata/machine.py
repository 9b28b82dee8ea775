"""A simulated machine in a folder: a fake root folder, a metadata service and fakes of every external command."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.userdata.hosts import PASSWORD, READY_PORT
from voice_userdata import HostUserDataConfig, render_user_data

FAKED_COMMANDS = (
    "aws", "blkid", "chown", "curl", "date", "docker", "ethtool", "install", "ip", "journalctl", "logger", "mkfs.xfs",
    "modprobe", "mount", "mountpoint", "mdadm", "networkctl", "neuron-ls", "nvidia-container-runtime-hook",
    "nvidia-smi", "sleep", "systemctl", "tee", "uname",
)  # fmt: skip
REAL_COMMANDS = ("awk", "base64", "basename", "cat", "grep", "head", "mkdir", "openssl", "readlink", "rm", "touch")
"""Real commands that the image of a host must contain, in addition to bash, python3 and the faked commands."""

PRIMARY, SECONDARY = "02:00:00:00:00:01", "02:00:00:00:00:02"
MODEL = "sys/block/{}/device/model"


class Machine:
    """One EC2 instance, from launch to termination.

    Attributes:
        root: Its root directory.
        fake: Folder with the state of the fakes.
        environment: Environment of the host's commands in addition to its own variables.
    """

    def __init__(self, folder: Path, port: int, *, memory_gib: int = 96) -> None:
        self.root, self.fake, self._bin = folder / "root", folder / "fake", folder / "bin"
        self._port = port
        self.environment: dict[str, str] = {}
        self._install_commands()
        self.write("dev/console", "")
        self.write("etc/systemd/system/.keep", "")
        self.write("usr/local/sbin/.keep", "")
        self.write("proc/meminfo", f"MemTotal:       {memory_gib * 1024 * 1024} kB\nMemFree: 1 kB\n")
        self.write("proc/sys/vm/compact_memory", "")
        self.write("proc/sys/net/ipv4/tcp_limit_output_bytes", "")
        self.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n")
        self.write("sys/class/net/ens5/address", PRIMARY + "\n")
        self.write("sys/class/net/lo/address", "00:00:00:00:00:00\n")
        self.write("sys/devices/system/cpu/online", "0-15\n")
        for irq in (40, 41):
            self.write(f"sys/class/net/ens5/device/msi_irqs/{irq}", "msix\n")
            self.write(f"proc/irq/{irq}/smp_affinity_list", "0-15\n")
        for queue in range(2):
            self.write(f"sys/class/net/ens5/queues/tx-{queue}/byte_queue_limits/limit_min", "0\n")
        self.metadata("instance-id", "i-0abc")
        self.metadata("local-ipv4", "10.0.1.7")
        self.metadata("mac", PRIMARY)
        self.metadata("placement/availability-zone", "us-east-1a")
        self.targets("InService", "Terminated")
        self.set("secret", json.dumps({"username": "vad", "password": PASSWORD}))

    def _install_commands(self) -> None:
        self._bin.mkdir(parents=True)
        fake = Path(__file__).parent / "fakes" / "fake.sh"
        self._fake_command = self._bin / ".fake"
        shutil.copy(fake, self._fake_command)
        self._fake_command.chmod(0o755)
        for name in FAKED_COMMANDS:
            (self._bin / name).symlink_to(".fake")
        for name in REAL_COMMANDS:
            (self._bin / name).symlink_to(shutil.which(name) or name)
        (self._bin / "python3").symlink_to(sys.executable)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def set(self, name: str, text: str = "") -> None:
        self.fake.mkdir(exist_ok=True)
        (self.fake / name).write_text(text + "\n")

    def metadata(self, path: str, *reads: str) -> None:
        """Return each value in turn, then the last one repeatedly; without values the item is removed."""
        file = self.fake / "imds" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        if reads:
            file.write_text("\n".join(reads) + "\n")

    def targets(self, *states: str) -> None:
        self.metadata("autoscaling/target-lifecycle-state", *states)

    def add_secondary_interface(self) -> None:
        pci = "sys/devices/pci0000:00/0000:00:06.0"
        self.write(f"{pci}/driver/unbind", "")
        self.write("sys/class/net/ens6/address", SECONDARY + "\n")
        (self.root / "sys/class/net/ens6/device").symlink_to(self.root / pci)
        self.write("sys/bus/pci/devices/.keep", "")
        (self.root / "sys/bus/pci/devices/0000:00:06.0").symlink_to(self.root / pci)
        for node in ("vfio", "noiommu-0"):
            self.write(f"dev/vfio/{node}", "")
        self.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n")
        self.write("etc/voice/vfio-write-combining", "6.1.0-test\n")
        macs = "network/interfaces/macs"
        self.metadata(f"{macs}.listing", f"{PRIMARY}/ {SECONDARY}/")
        self.metadata(f"{macs}/{PRIMARY}/device-number", "0")
        self.metadata(f"{macs}/{SECONDARY}/device-number", "1")
        self.metadata(f"{macs}/{SECONDARY}/local-ipv4s", "10.0.2.9")

    def add_command(self, name: str) -> None:
        (self._bin / name).symlink_to(".fake")

    def remove_command(self, name: str) -> None:
        (self._bin / name).unlink()

    def run(self, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {"PATH": str(self._bin), "VOICE_ROOT": str(self.root), "FAKE": str(self.fake)}
        environment = self.environment | own
        return subprocess.run(  # noqa: S603 - the script under test
            ["/bin/bash", str(script), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def launch(self, boot: HostUserDataConfig) -> subprocess.CompletedProcess[str]:
        """Run the user data, and the units that systemd would start."""
        script = self.root.parent / "part-001"
        script.write_text(render_user_data(boot))
        installed = self.run(script)
        assert installed.returncode == 0, installed.stderr
        return self.boot()

    def boot(self) -> subprocess.CompletedProcess[str]:
        """Run the installed script like its systemd unit."""
        assert self.installed_script.stat().st_mode & 0o777 == 0o700
        return self.run(self.installed_script, "boot")

    def power_cycle(self) -> None:
        """Simulate a power cycle: clear memory and keep the disk."""
        shutil.rmtree(self.root / "run")
        for name in ("mounts", "active", "stopping", "combined", "rx", "transcript"):
            (self.fake / name).unlink(missing_ok=True)

    @property
    def installed_script(self) -> Path:
        return self.root / "usr/local/sbin/voice-host"

    @property
    def transcript(self) -> list[str]:
        return self._plain((self.fake / "transcript").read_text()).splitlines()

    @property
    def log(self) -> list[str]:
        return self._plain((self.root / "dev/console").read_text()).splitlines()

    @property
    def reason(self) -> str:
        return next(line for line in self.log if "FAILED" in line).removeprefix("voice-host: FAILED: ")

    @property
    def answers(self) -> list[tuple[str, str]]:
        """Return hook and result of every completed lifecycle action."""
        words = [line.split() for line in self.transcript if " complete-lifecycle-action " in line]
        return [(w[w.index("--lifecycle-hook-name") + 1], w[w.index("--lifecycle-action-result") + 1]) for w in words]

    def file(self, path: str) -> str:
        return self._plain((self.root / path).read_text())

    def report(self) -> str:
        """Return all events and written files, for comparison with a golden file."""
        return "\n".join(["== commands", *self.transcript, *self._files()]) + "\n"

    def _files(self) -> Iterator[str]:
        for folder in ("etc/systemd", "run", "usr/local"):
            for file in sorted(path for path in (self.root / folder).rglob("*") if path.is_file()):
                path = file.relative_to(self.root)
                if file.name == ".keep":
                    continue
                yield f"== /{path} {file.stat().st_mode & 0o777:04o}"
                if "secrets" not in path.parts and file != self.installed_script:
                    yield self.file(str(path)).rstrip("\n")

    def _plain(self, text: str) -> str:
        return (
            text.replace(str(self.root), "")
            .replace(str(self.root.parent), "")
            .replace(str(self._port), str(READY_PORT))
        )


def check_golden(name: str, text: str) -> None:
    """Compare with ``golden/<name>.txt``; ``UPDATE_GOLDEN=1`` writes it instead."""
    golden = Path(__file__).parent / "golden" / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert golden.exists(), f"{golden} is missing: run with UPDATE_GOLDEN=1 and read what it wrote"
    assert text == golden.read_text()
