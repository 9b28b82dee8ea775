"""A virtual machine in QEMU, with a timestamped console and commands that run inside."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_sandbox.hosts.acceleration import detect_accelerator
from voice_sandbox.hosts.disk import Disk, HostRehearsalError
from voice_sandbox.hosts.network import MTU_BYTES

NOTE_PREFIX = "rehearsal: "
"""Prefix of lines that are not from the machine itself."""
CPU_COUNT = 3
"""Number of CPUs: two for pollers that never sleep, and one for all other programs."""
_RESPONSE_TIMEOUT_S = 600
"""Timeout for the guest agent, whose first response takes half of the boot time."""
_FIRST_LINE_TIMEOUT_S = 240
"""Timeout for the first line on the console. An emulated machine on two idle cores writes it after 17 s."""
_MAX_RESETS = 2
_KERNEL_ARGUMENTS = " ".join(
    [
        # An emulated CPU needs no mitigations, and they are the slowest code to emulate.
        "mitigations=off init_on_alloc=0 audit=0 selinux=0",
        # The root file system lacks AppArmor's tools; with AppArmor enabled, Docker would start no containers.
        "apparmor=0",
        # On a busy machine, the emulated clock looks unstable; a kernel that patched its own code for that reason
        # panicked (int3 in sched_clock_cpu). With a reliable clock this is rare. A kernel that panics reboots.
        "tsc=reliable panic=1",
        # When a machine is restored to a snapshot, its clock jumps, which is neither a stall nor a missed watchdog.
        # Without this setting, systemd killed networkd, and the host had no network when its user data started.
        "rcupdate.rcu_cpu_stall_suppress=1 systemd.service_watchdogs=no",
        # Logins are not used, and systemd would wait 90 s for the terminal.
        "systemd.mask=serial-getty@ttyS0.service",
    ]
)
_ESCAPE_PATTERN = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


@dataclass(frozen=True)
class Hardware:
    """Hardware of a machine.

    Attributes:
        queue_count: Queues of its interface. If possible, virtio-net adds a queue per CPU to the XDP queues and spreads
            packets over all of them. With one queue fewer, it uses the queues configured by user data, as ENA does.
        mtu: Maximum MTU of its interface, as on EC2.
        disk_count: Number of NVMe disks of 1 GiB in addition to the root disk.
        cpu_counts_by_node: CPUs of each NUMA node, each of which has its own PCI device; empty for one node with
            ``cpus``.
    """

    memory_mib: int = 8192
    queue_count: int = 4
    mtu: int = MTU_BYTES
    disk_count: int = 0
    cpu_count: int = CPU_COUNT
    cpu_counts_by_node: tuple[int, ...] = ()


DEFAULT_HARDWARE = Hardware()


@dataclass(frozen=True)
class NetworkInterface:
    """A machine's network connection.

    Attributes:
        mac: MAC address of its interface, which gets its IP address through DHCP.
    """

    tap: str
    mac: str


@dataclass(frozen=True)
class ConsoleLine:
    """A line of the console, with the seconds since power-on."""

    elapsed_s: float
    text: str


class Machine:
    """A host from power-on to power-off, whose disk persists across reboots.

    Args:
        link: Network connection, or None.
        is_instance: Whether EC2 provides user data.
        folder: Folder of the console log, which remains after the machine has stopped.

    Attributes:
        console: File with the console output.
    """

    def __init__(
        self,
        name: str,
        disk: Disk,
        hardware: Hardware,
        *,
        link: NetworkInterface | None,
        is_instance: bool = True,
        folder: Path,
    ) -> None:
        self.name = name
        self.console = folder / f"{name}.console"
        self._agent_path, self._monitor_path = folder / f"{name}.agent", folder / f"{name}.monitor"
        self._agent: socket.socket | None = None
        self._lines: list[ConsoleLine] = []
        self._lines_lock = threading.Lock()
        command = [
            *_build_qemu_arguments(disk, is_instance=is_instance),
            *(_build_interface_arguments(hardware, link) if link else ()),
            *_iter_disk_arguments(hardware.disk_count, folder / name),
            *("-serial", "stdio", "-qmp", f"unix:{self._monitor_path},server=on,wait=off"),
            *("-chardev", f"socket,id=agent,path={self._agent_path},server=on,wait=off", "-device", "virtio-serial"),
            *("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"),
            # These arguments must be last, since QEMU connects any devices after them to the last bus.
            *_iter_memory_arguments(hardware),
        ]
        self._start = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        threading.Thread(target=self._read_console, daemon=True).start()
        threading.Thread(target=self._reset_if_silent, daemon=True).start()

    def _read_console(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  asked for above
        with self.console.open("w", encoding="utf-8") as file:
            for raw in self._process.stdout:
                line = ConsoleLine(self.uptime_s, _ESCAPE_PATTERN.sub("", raw.decode(errors="replace")).rstrip())
                print(f"{line.elapsed_s:7.1f} {line.text}", file=file, flush=True)
                self._add_line(line)

    def _reset_if_silent(self) -> None:
        """Reset the machine if its kernel hangs before the first line on the console.

        One of about 50 emulated machines did: all its CPUs were halted, one of them in its timer's interrupt.
        """
        for _ in range(_MAX_RESETS):
            deadline = time.monotonic() + _FIRST_LINE_TIMEOUT_S
            while time.monotonic() < deadline:
                if not self.is_running or any(not each.text.startswith(NOTE_PREFIX) for each in self.console_lines):
                    return
                time.sleep(1)
            self.add_note(f"nothing on the console for {_FIRST_LINE_TIMEOUT_S} s, so the machine is reset")
            self._run_monitor_command("system_reset")

    def _add_line(self, line: ConsoleLine) -> None:
        with self._lines_lock:
            self._lines.append(line)

    def add_note(self, text: str) -> None:
        """Add the description of an event to the console lines."""
        self._add_line(ConsoleLine(self.uptime_s, f"{NOTE_PREFIX}{text}"))

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def console_lines(self) -> list[ConsoleLine]:
        with self._lines_lock:
            return list(self._lines)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def find_line(self, text: str, *, since_s: float = 0) -> ConsoleLine | None:
        """Return the first console line that contains the text, starting at a time after power-on."""
        return next((line for line in self.console_lines if line.elapsed_s >= since_s and text in line.text), None)

    def read_last_lines(self) -> str:
        """Return the console's last lines."""
        return "\n".join(line.text for line in self.console_lines[-25:])

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a shell command as root inside the machine, and return its output.

        A command of more than 4,000 characters may remain without a response: QEMU 7.2 sometimes stops reading a
        message that does not fit into the 4 KiB buffer of the agent's port.

        Raises:
            HostRehearsalError: The command fails, or the machine does not respond.
        """
        shell = {"path": "/bin/bash", "arg": ["-c", command], "capture-output": True}
        process = self._call_agent("guest-exec", shell)["pid"]
        deadline = time.monotonic() + _RESPONSE_TIMEOUT_S
        while not (answer := self._call_agent("guest-exec-status", {"pid": process}))["exited"]:
            if time.monotonic() > deadline:
                raise HostRehearsalError(f"{self.name}: `{command}` did not finish in {_RESPONSE_TIMEOUT_S} s")
            time.sleep(0.2)
        output = base64.b64decode(answer.get("out-data", "")).decode()
        if check and answer.get("exitcode"):
            errors = base64.b64decode(answer.get("err-data", "")).decode()
            raise HostRehearsalError(f"{self.name}: `{command}` failed with {answer['exitcode']}: {errors or output}")
        return output

    def run_in_background(self, command: str) -> None:
        """Run a shell command inside the machine without waiting for it, for example to shut the machine down."""
        self._call_agent("guest-exec", {"path": "/bin/bash", "arg": ["-c", command]})
        self._agent = None

    def _call_agent(self, command: str, arguments: dict[str, Any]) -> Any:
        """Send a request to QEMU's agent in the machine."""
        deadline = time.monotonic() + _RESPONSE_TIMEOUT_S
        if self._agent is None:
            self._agent = self._connect(self._agent_path)
            # A response to a request from before a reboot may still arrive, so a number identifies the response.
        request_id = time.monotonic_ns()
        self._send("guest-sync", {"id": request_id})
        self._send(command, arguments)
        buffer, synced = b"", False
        while time.monotonic() < deadline:
            piece = self._agent.recv(65536)
            if not piece:
                raise HostRehearsalError(f"{self.name}: stopped before it responded to {command}")
            buffer += piece
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                answer = json.loads(line)
                if synced and "error" in answer:
                    raise HostRehearsalError(f"{self.name}: {command}: {answer['error']['desc']}")
                if synced:
                    return answer["return"]
                synced = answer.get("return") == request_id
        raise HostRehearsalError(f"{self.name}: no response to {command} in {_RESPONSE_TIMEOUT_S} s")

    def _send(self, command: str, arguments: dict[str, Any]) -> None:
        assert self._agent is not None  # noqa: S101  connected above
        self._agent.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")

    def _connect(self, path: Path) -> socket.socket:
        """Connect to one of QEMU's sockets, which exist shortly after QEMU has started."""
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_RESPONSE_TIMEOUT_S)
            try:
                connection.connect(str(path))
            except OSError:
                connection.close()
                if not self.is_running:
                    raise
                time.sleep(0.1)
            else:
                return connection

    def save_snapshot(self, name: str) -> None:
        """Save memory, devices and disk in a snapshot, which exists as long as the machine runs."""
        self._run_monitor_command(f"savevm {name}")

    def restore_snapshot(self, name: str) -> None:
        """Restore a snapshot. The console and the age are reset, and the machine's clock is set to the current time."""
        self._run_monitor_command("stop")
        self._run_monitor_command(f"loadvm {name}")
        with self._lines_lock:
            self._lines.clear()
        self._start = time.monotonic()
        self._run_monitor_command("cont")
        # CloudWatch alarms evaluate the most recent data.
        self.run(f"date --set=@{time.time():.0f}")

    def _run_monitor_command(self, line: str) -> None:
        """Run a command in QEMU's monitor, which returns output only if the command fails."""
        with self._connect(self._monitor_path) as connection:
            for command, arguments in (("qmp_capabilities", {}), ("human-monitor-command", {"command-line": line})):
                connection.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                returned = (answer["return"] for answer in map(json.loads, answers) if "return" in answer)
                next(returned)
                if message := next(returned):
                    raise HostRehearsalError(f"{self.name}: `{line}`: {message.strip()}")

    def stop(self) -> None:
        """Kill the machine."""
        self._process.terminate()
        self._process.wait()


def _iter_disk_arguments(count: int, path: Path) -> Iterator[str]:
    for number in range(count):
        file = path.with_suffix(f".nvme{number}")
        with file.open("wb") as image_file:
            image_file.truncate(1 << 30)
        yield from ("-drive", f"file={file},format=raw,if=none,id=nvme{number}")
        yield from ("-device", f"nvme,drive=nvme{number},serial=nvme{number}")


def _build_interface_arguments(hardware: Hardware, link: NetworkInterface) -> list[str]:
    # Checksum and segmentation offload are disabled, since native XDP rejects an interface that merges packets.
    offloads = [f"guest_{offload}=off" for offload in ("tso4", "tso6", "ecn", "ufo", "csum")]
    interface = ["virtio-net-pci", "netdev=net", f"mac={link.mac}", "addr=5", "mq=on"]
    interface += [
        f"vectors={2 * hardware.queue_count + 2}",
        f"host_mtu={hardware.mtu}",
        "rx_queue_size=1024",
        *offloads,
    ]
    tap = f"tap,id=net,ifname={link.tap},script=no,downscript=no,queues={hardware.queue_count}"
    return ["-netdev", tap, "-device", ",".join(interface)]


def _iter_memory_arguments(hardware: Hardware) -> Iterator[str]:
    """Yield QEMU's arguments for CPUs and memory. Unused pages of the machine use no memory on the host."""
    yield from ("-m", f"{hardware.memory_mib}M", "-smp", str(sum(hardware.cpu_counts_by_node) or hardware.cpu_count))
    if not hardware.cpu_counts_by_node:
        yield from ("-object", f"memory-backend-ram,id=memory,size={hardware.memory_mib}M,reserve=off")
        yield from ("-machine", "memory-backend=memory")
    first = 0
    for node, cpus in enumerate(hardware.cpu_counts_by_node):
        size = hardware.memory_mib // len(hardware.cpu_counts_by_node)
        yield from ("-object", f"memory-backend-ram,id=node{node},size={size}M,reserve=off")
        yield from ("-numa", f"node,nodeid={node},cpus={first}-{first + cpus - 1},memdev=node{node}")
        yield from ("-device", f"pxb,id=bus{node},bus=pci.0,bus_nr={16 * (node + 1)},numa_node={node}")
        yield from ("-device", f"virtio-rng-pci,bus=bus{node},addr=1")
        first += cpus


def _build_qemu_arguments(disk: Disk, *, is_instance: bool) -> list[str]:
    # cloud-init uses these values to detect EC2.
    identity = "ec2" + str(uuid.uuid4())[3:]
    words = f"root=/dev/vda rw console=ttyS0 {_KERNEL_ARGUMENTS} quiet" + (
        "" if is_instance else " cloud-init=disabled"
    )
    return [
        *("qemu-system-x86_64", "-accel", detect_accelerator(disk.kernel), "-cpu", "max", "-nodefaults"),
        *("-machine", "pc", "-display", "none"),
        *("-smbios", f"type=1,manufacturer=Amazon EC2,uuid={identity},serial={identity}"),
        *("-kernel", str(disk.kernel), "-initrd", str(disk.initrd), "-append", words),
        # The machine's writes and snapshots go to a temporary file, which QEMU removes.
        *("-drive", f"file={disk.root},format=raw,if=none,id=root,snapshot=on"),
        *("-device", "virtio-blk-pci,drive=root"),
    ]
