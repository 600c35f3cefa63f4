"""CPUs and memory: how much of the node this process may use."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

_NODES = "/sys/devices/system/node"
_CGROUPS = "/sys/fs/cgroup"
# What a node's meminfo calls free, or can be freed at once. Source: the kernel's Documentation/filesystems/proc.rst.
_FREEABLE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


@dataclass(frozen=True)
class Cpus:
    """CPUs that this process may use."""

    allowed: int
    """By its affinity."""
    quota: Optional[float] = None
    """Of its cgroup, in CPUs; None: no limit."""

    @property
    def usable(self) -> int:
        """How many can work at once, at least one."""
        return max(1, self.allowed if self.quota is None else min(self.allowed, int(self.quota)))


@dataclass(frozen=True)
class Memory:
    """Bytes that this process may still use, by each account; None where one has no limit or is not kept."""

    available: Optional[int]
    """The kernel's estimate for the whole node, MemAvailable."""
    cpu_nodes: Optional[int] = None
    """Free or freeable on NUMA nodes with CPUs; None where all have. GPU memory of Grace is a node without."""
    cgroup: Optional[int] = None
    """Left in its cgroup and those around it."""
    source: tuple[Evidence, ...] = ()


def cpus(machine: Machine) -> Cpus:
    """Read how many CPUs there are for us: affinity, and quotas of the cgroups (v2: cpu.max)."""
    quotas = []
    for directory in _cgroups(machine, ""):
        words = _words(machine, os.path.join(directory, "cpu.max"))
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return Cpus(machine.cpus(), min(quotas, default=None))


def memory(machine: Machine) -> Memory:
    """Read how much memory is left for us.

    Source: /proc/meminfo, /sys/devices/system/node, and the cgroup's memory.max, memory.high and memory.current (v1:
    memory.limit_in_bytes, memory.usage_in_bytes), its inactive page cache counted as free.
    """
    table = _meminfo(machine.text("/proc/meminfo"))
    available = table.get("MemAvailable")
    shown = f"MemAvailable: {available} bytes" if available is not None else "no MemAvailable"
    return Memory(available, _cpu_nodes(machine), _cgroup_left(machine), (Evidence("/proc/meminfo", None, shown),))


def _cpu_nodes(machine: Machine) -> Optional[int]:
    if not machine.is_dir(_NODES):
        return None
    nodes = [os.path.join(_NODES, name) for name in machine.list(_NODES) if re.fullmatch(r"node\d+", name)]
    with_cpus = [node for node in nodes if _words(machine, os.path.join(node, "cpulist"))]
    if len(with_cpus) == len(nodes):
        return None
    tables = [_meminfo(machine.text(os.path.join(node, "meminfo"))) for node in with_cpus]
    return sum(table.get(key, 0) for table in tables for key in _FREEABLE)


def _cgroup_left(machine: Machine) -> Optional[int]:
    left = []
    for directory in _cgroups(machine, "memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.high", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            most, now = (_words(machine, os.path.join(directory, name)) for name in (limit, used))
            # v1 says "no limit" as a number near 2^63.
            if most and now and most[0].isdigit() and int(most[0]) < 1 << 60:
                left.append(int(most[0]) - int(now[0]) + _inactive(machine, directory))
    return max(0, min(left)) if left else None


def _inactive(machine: Machine, directory: str) -> int:
    words = _words(machine, os.path.join(directory, "memory.stat"))
    table = dict(zip(words[::2], words[1::2]))
    return int(table.get("total_inactive_file", table.get("inactive_file", "0")))


def _cgroups(machine: Machine, controller: str) -> Iterator[str]:
    """Yield the directories of this process's cgroup and of those around it, v2 or a controller's of v1."""
    try:
        lines = machine.text("/proc/self/cgroup").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            root = _CGROUPS if controllers == "" else os.path.join(_CGROUPS, controller)
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), -1, -1):
                yield os.path.join(root, *parts[:depth])


def _words(machine: Machine, path: str) -> list[str]:
    try:
        return machine.text(path).split()
    except OSError:
        return []


def _meminfo(text: str) -> dict[str, int]:
    """Return a meminfo's values in bytes; a node's lines begin with "Node 0"."""
    found = (re.match(r"(?:Node \d+ )?(\S+):\s+(\d+) kB", line.strip()) for line in text.splitlines())
    return {match[1]: int(match[2]) * 1024 for match in found if match}
