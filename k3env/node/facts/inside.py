"""Whether this process is in a container, where the node's own tools and files can't be seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence

CGROUP = "/proc/self/cgroup"
UID_MAP = "/proc/self/uid_map"

_VARIABLES = ("ENROOT_ROOTFS", "PYXIS_CONTAINER_NAME", "container")
_FILES = ("/.dockerenv", "/run/.containerenv")
_WHOLE = ["0", "0", "4294967295"]


@dataclass(frozen=True)
class Inside:
    """What tells of a container around this process."""

    container: Optional[str] = None
    """The mark that was found, such as "/.dockerenv"; None: nothing tells of one."""
    source: tuple[Evidence, ...] = ()


@deadline(1.0)
def inside(machine: Machine) -> Inside:
    """Look for a container's marks.

    Source: variables and files that engines leave; a user namespace, which enroot's and rootless containers are, by
    /proc/self/uid_map (user_namespaces(7)); a container's id among the cgroups.
    """
    for name in _VARIABLES:
        if machine.environment.get(name):
            mark = f"{name}={machine.environment[name]}"
            return Inside(mark, (Evidence("environment", excerpt=mark),))
    for path in _FILES:
        if machine.exists(path):
            return Inside(path, (Evidence(path),))
    uids, cgroup = _text(machine, UID_MAP), _text(machine, CGROUP)
    sources = (Evidence(UID_MAP, excerpt=uids.strip()), Evidence(CGROUP, excerpt=cgroup.strip()[-512:]))
    if uids.strip() and uids.split() != _WHOLE:
        return Inside(f"a user namespace: {' '.join(uids.split()[:3])}", sources)
    found = re.search(r"\b[0-9a-f]{64}\b", cgroup)
    return Inside(found.group(0) if found else None, sources)


def _text(machine: Machine, path: str) -> str:
    try:
        return machine.text(path, 1 << 16)
    except OSError:
        return ""
