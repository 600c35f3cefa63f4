"""The kernel: what it is called and how large its pages are."""

from __future__ import annotations

from dataclasses import dataclass

from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence

RELEASE_FILE = "/proc/sys/kernel/osrelease"


@dataclass(frozen=True)
class Kernel:
    """The running kernel."""

    release: str
    """"6.8.0-1058-nvidia-64k"."""
    architecture: str
    """"aarch64"."""
    page_size: int
    """Bytes: 65536 on kernels for Grace that say 64k."""
    source: Evidence


def kernel(machine: Machine) -> Kernel:
    """Read the running kernel.

    Source: /proc/sys/kernel/osrelease, uname(2), and sysconf(_SC_PAGE_SIZE).
    """
    release = machine.text(RELEASE_FILE).strip()
    return Kernel(
        release,
        machine.architecture(),
        machine.page_size(),
        Evidence(RELEASE_FILE, excerpt=release),
    )
