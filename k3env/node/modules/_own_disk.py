"""What of a build lies on the node's own disk: caches that a network filesystem would slow down, or spoil.

Sources: TensorRT LLM #17524 (builds on NFS), ccache's issue 68 (stale objects on NFS); conan keeps an SQLite database.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional

from k3env.errors import Refused
from k3env.node import manifest
from k3env.node.facts import mounts
from k3env.node.modules import _conan
from k3env.protocol.container import Container

if TYPE_CHECKING:
    from k3env.node.machine import Machine

BASE = "/var/tmp"  # noqa: S108 - local, and it outlives a reboot; what a stranger put there is refused
_CACHES = {"CCACHE_DIR": "ccache", "PIP_CACHE_DIR": "pip"}


@dataclass(frozen=True)
class OwnDisk:
    """Where a build finds its caches."""

    caches: dict[str, str] = field(default_factory=dict)
    """Variable to directory; those that are not here stay where they are by themselves."""
    container: Container = Container()
    """The image, with what lies outside of the checkout mounted at the same path."""

    def make(self, machine: Machine) -> None:
        """Make the directories.

        Raises OSError, Refused for a stranger's.
        """
        for path in self.caches.values():
            machine.make(path)


def of(machine: Machine, root: str, container: Container, given: Mapping[str, str]) -> OwnDisk:
    """Return where the caches of a build in `root` lie: on this node's own disk, if they would lie on a network.

    `given` is what the task sets itself, which stays. A home of conan that the node's environment names is used where
    it is not on a network.
    """
    table = mounts.mounts(machine)
    caches = {}
    base = _base(machine, table)
    far = bool(base) and _is_far(machine, table, root)
    own = _conan.configured(machine)
    conan = own or os.path.join(root, manifest.DIRECTORY, "conan")
    for name, where in {_conan.VARIABLE: conan, **_usual(machine, container)}.items():
        if name in given:
            continue
        if base and (far if where is None else _is_far(machine, table, where)):
            caches[name] = os.path.join(base, "conan" if name == _conan.VARIABLE else _CACHES[name])
        elif name == _conan.VARIABLE and where is not None:
            caches[name] = where
    is_used = bool(base) and any(path.startswith(f"{base}/") for path in caches.values())
    more = [base] if is_used else []
    more += [own] if own is not None and caches.get(_conan.VARIABLE) == own else []
    return OwnDisk(caches, mounted(container, *more))


def base(machine: Machine) -> str:
    """Return this user's directory for builds on the node's own disk; "" where there is no such disk."""
    return _base(machine, mounts.mounts(machine))


def mounted(container: Container, *paths: str) -> Container:
    """Return an image with more directories of the node, each at its own path."""
    if container.engine == "none" or not paths:
        return container
    return replace(container, mounts=(*container.mounts, *(f"{path}:{path}" for path in paths)))


def refuse_far(machine: Machine, build_root: str) -> None:
    """Raise Refused for a build root on a network filesystem, which it is there to avoid."""
    mount = _data(machine, mounts.mounts(machine), build_root)
    if mount.kind == mounts.NETWORK:
        raise Refused(
            f"the build root {build_root} is on a network filesystem",
            expected="a directory on a disk of the node itself", found=f"{mount.fstype} at {mount.point}",
            remedy="set build_root to a local directory, or leave it out", id="trtllm.build_root",
        )  # fmt: skip


def _base(machine: Machine, table: tuple[mounts.Mount, ...]) -> str:
    return f"{BASE}/k3env-build-{os.geteuid()}" if _is_near(machine, table, BASE) else ""


def _usual(machine: Machine, container: Container) -> dict[str, Optional[str]]:
    """Return where caches lie by themselves; None in a container: an engine may mount the home or not."""
    around = machine.environment
    if container.engine != "none":
        return dict.fromkeys(_CACHES)
    home = around.get("XDG_CACHE_HOME") or os.path.join(around.get("HOME", "/"), ".cache")
    return {name: around.get(name) or os.path.join(home, directory) for name, directory in _CACHES.items()}


def _is_far(machine: Machine, table: tuple[mounts.Mount, ...], path: str) -> bool:
    return _data(machine, table, path).kind == mounts.NETWORK


def _is_near(machine: Machine, table: tuple[mounts.Mount, ...], path: str) -> bool:
    return _data(machine, table, path).kind in (mounts.LOCAL, mounts.AMBIGUOUS)


def _data(machine: Machine, table: tuple[mounts.Mount, ...], path: str) -> mounts.Mount:
    return mounts.data_mount(table, mounts.containing(table, machine.realpath(path)), machine)
