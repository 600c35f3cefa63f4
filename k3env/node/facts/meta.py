"""Who says all this: the host, its boot, its container, this version of k3env."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Optional

from k3env import __version__
from k3env.node.facts import deadline
from k3env.node.facts.inside import inside
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence

BOOT_ID = "/proc/sys/kernel/random/boot_id"
HOSTNAME = "/proc/sys/kernel/hostname"


@dataclass(frozen=True)
class Meta:
    """Where and when facts were read."""

    host: str
    boot_id: str
    container: Optional[str]
    """What tells that this is a container, such as "enroot" or an id; None: nothing does."""
    uid: int
    time: str
    """RFC 3339, UTC."""
    k3env: str
    source: tuple[Evidence, ...] = ()


@deadline(1.0)
def meta(machine: Machine) -> Meta:
    """Read where this is."""
    host = machine.text(HOSTNAME, 256).strip()
    boot_id = machine.text(BOOT_ID, 256).strip()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sources = (Evidence(HOSTNAME, excerpt=host), Evidence(BOOT_ID, excerpt=boot_id))
    return Meta(host, boot_id, inside(machine).container, machine.uid(), now, __version__, sources)
