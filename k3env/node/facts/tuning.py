"""How the kernel is set: modules, NUMA balancing, CPU frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence

MODULES = "/proc/modules"
BUILT_IN = "/sys/module"
NUMA_BALANCING = "/proc/sys/kernel/numa_balancing"
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
WATCHED = ("nvidia", "nvidia_uvm", "nvidia_peermem", "gdrdrv", "overlay", "squashfs")


@dataclass(frozen=True)
class Modules:
    """Kernel modules that matter here."""

    loaded: tuple[str, ...]
    """Of those watched, the loaded ones, built in or not."""
    source: Evidence


@dataclass(frozen=True)
class Numa:
    """How the kernel moves memory between NUMA nodes."""

    balancing: Optional[str]
    """"0" off; "1" and "2" on; None: this kernel can't."""
    source: Evidence


@dataclass(frozen=True)
class Governors:
    """Who chooses the CPUs' frequency."""

    policies: dict[str, int]
    """Governor to the number of frequency domains that have it; empty: the kernel does not set the frequency."""
    source: Evidence


@deadline(2.0)
def modules(machine: Machine) -> Modules:
    """Read which kernel modules are loaded.

    Source: the first words of /proc/modules; /sys/module/NAME for one that is built in, which is all that there is
    on a kernel without loadable modules.
    """
    try:
        lines = machine.text(MODULES).splitlines()
    except FileNotFoundError:
        if not machine.is_dir(BUILT_IN):
            raise
        lines = []
    names = {line.split()[0] for line in lines if line.strip()}
    loaded = tuple(name for name in WATCHED if name in names or machine.is_dir(f"{BUILT_IN}/{name}"))
    return Modules(loaded, Evidence(MODULES, excerpt=f"of {' '.join(WATCHED)}: {' '.join(loaded) or 'none'}"))


@deadline(2.0)
def numa(machine: Machine) -> Numa:
    """Read whether the kernel moves pages between NUMA nodes by itself."""
    try:
        found = machine.text(NUMA_BALANCING, 64).strip()
    except (FileNotFoundError, NotADirectoryError):
        return Numa(None, Evidence(NUMA_BALANCING, excerpt="no such file"))
    if not found.isdigit():
        raise ValueError(f"{NUMA_BALANCING} is {found!r:.40}")
    return Numa(found, Evidence(NUMA_BALANCING, excerpt=found))


@deadline(2.0)
def governors(machine: Machine) -> Governors:
    """Read which governor each frequency domain has.

    Source: /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; a virtual machine has none.
    """
    where = f"{CPUFREQ}/policy*/scaling_governor"
    counts: dict[str, int] = {}
    try:
        names = [name for name in machine.list(CPUFREQ) if name.startswith("policy")]
    except (FileNotFoundError, NotADirectoryError):
        return Governors({}, Evidence(where, excerpt="no such directory"))
    for name in names:
        word = machine.text(f"{CPUFREQ}/{name}/scaling_governor", 64).strip()
        counts[word] = counts.get(word, 0) + 1
    told = "\n".join(f"{count} x {word}" for word, count in counts.items())
    return Governors(counts, Evidence(where, excerpt=told))
