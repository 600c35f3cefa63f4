"""What a rank may use: open files, locked memory, shared memory, CPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Union

from k3env.node.facts import deadline
from k3env.node.facts.gpu import PCI_DEVICES, PROC_GPUS
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

LIMITS = "/proc/self/limits"
STATUS = "/proc/self/status"
SHM = "/dev/shm"  # noqa: S108
_ROWS = {"nofile": "Max open files", "memlock": "Max locked memory"}


@dataclass(frozen=True)
class Limit:
    """A resource limit of this process; None: unlimited."""

    soft: Optional[int]
    hard: Optional[int]


@dataclass(frozen=True)
class Limits:
    """The limits that a process of the job starts with."""

    nofile: Limit
    memlock: Limit
    """Bytes."""
    source: Evidence


@dataclass(frozen=True)
class SharedMemory:
    """Shared memory as a filesystem."""

    free_bytes: Optional[int]
    """None where there is no such directory."""
    source: Evidence


@dataclass(frozen=True)
class Affinity:
    """The CPUs that this process may run on, and those near the GPU that its local rank uses."""

    cpus: tuple[int, ...]
    local_rank: Optional[int] = None
    """None outside of a job's step."""
    gpu: Optional[str] = None
    """Bus id of the local rank's GPU, the rank's own in the order of bus ids; None where there is none."""
    near: Union[tuple[int, ...], Unreadable] = ()
    """CPUs near that GPU; empty: the kernel says none, as on Grace in some modes."""
    source: tuple[Evidence, ...] = ()


@deadline(2.0)
def limits(machine: Machine) -> Union[Limits, Unreadable]:
    """Read this process's limits; a session over SSH has others than a job's step.

    Source: /proc/self/limits, "Max open files            1024                 524288               files".
    """
    text = machine.text(LIMITS)
    found = {}
    for name, title in _ROWS.items():
        row = re.search(rf"^{title}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
        if row is None or not all(re.fullmatch(r"\d+|unlimited", word) for word in row.groups()):
            return Unreadable(f"{LIMITS} has no row {title!r}", Evidence(LIMITS, excerpt=excerpt(text.encode())))
        found[name] = Limit(*(None if word == "unlimited" else int(word) for word in row.groups()))
    told = "\n".join(line for line in text.splitlines() if line.startswith(tuple(_ROWS.values())))
    return Limits(found["nofile"], found["memlock"], Evidence(LIMITS, excerpt=told))


@deadline(2.0)
def shared_memory(machine: Machine) -> SharedMemory:
    """Read what is free in /dev/shm, which containers share with the node."""
    if not machine.is_dir(SHM):
        return SharedMemory(None, Evidence(SHM, excerpt="no such directory"))
    space = machine.space(SHM)
    return SharedMemory(space.free_bytes, Evidence(f"statvfs {SHM}", excerpt=f"{space.free_bytes} bytes are free"))


@deadline(2.0)
def affinity(machine: Machine) -> Affinity:
    """Read on which CPUs this process may run, and which are near its GPU.

    Source: Cpus_allowed_list in /proc/self/status; SLURM_LOCALID; local_cpulist of the GPU under /sys/bus/pci/devices.
    """
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", machine.text(STATUS), re.MULTILINE)
    if found is None:
        raise ValueError(f"{STATUS} has no Cpus_allowed_list")
    cpus = cpu_list(found.group(1))
    sources = (Evidence(STATUS, excerpt=found.group(0)),)
    word = machine.environment.get("SLURM_LOCALID", "")
    if not word.isdigit():
        return Affinity(cpus, source=sources)
    buses = machine.list(PROC_GPUS) if machine.is_dir(PROC_GPUS) else ()
    if int(word) >= len(buses):
        return Affinity(cpus, int(word), source=sources)
    path = f"{PCI_DEVICES}/{buses[int(word)]}/local_cpulist"
    near: Union[tuple[int, ...], Unreadable]
    try:
        text = machine.text(path).strip()
        near = cpu_list(text)
        told = Evidence(path, excerpt=text)
    except (OSError, ValueError) as error:
        told = Evidence(path, excerpt=str(error))
        near = Unreadable(f"{path}: {error}", told)
    return Affinity(cpus, int(word), buses[int(word)], near, (*sources, told))


def cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of a kernel's list such as "0-3,8".

    Raises ValueError for anything else, and for a list longer than any machine's.
    """
    cpus: list[int] = []
    for part in text.split(",") if text else []:
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if high - low > 1 << 16:
            raise ValueError(f"{part!r} is no range of CPUs")
        cpus += range(low, high + 1)
    return tuple(cpus)
