"""Reads the CPU time of processes and of the whole machine from /proc."""

import os
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def measure_process_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its living descendants, in seconds."""
    # The name, in parentheses, may contain spaces. User and system time are the 14th and 15th fields.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    children = (task.read_text(encoding="ascii").split() for task in Path(f"/proc/{pid}/task").glob("*/children"))
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S + sum(
        measure_process_cpu_s(int(child)) for of in children for child in of
    )


def measure_machine_cpu_s() -> float:
    """Return the CPU time of the whole machine since boot, in seconds."""
    line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
