"""Room for a build: what lands where, and whether each of these filesystems, and this user's quota, has it.

Objects go to the build root if there is one, else into the checkout; the virtual environment and the libraries always
go into the checkout; caches of pip and conan go where they lie, which may be a third filesystem.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from k3env.k3 import build as k3
from k3env.node.facts import mounts
from k3env.node.facts.quota import Quota, quota
from k3env.node.machine import Machine, Space
from k3env.protocol.finding import Unreadable


@dataclass(frozen=True)
class Need:
    """What is written below a path."""

    path: str
    what: str
    """For people: "objects"."""
    size: int
    """Bytes."""
    inodes: int


@dataclass(frozen=True)
class Room:
    """A filesystem, with all that lands on it."""

    needs: tuple[Need, ...]
    space: Optional[Space] = None
    """Free there for anybody; None: unknown."""
    quota: Optional[Quota] = None
    """What this user may still write there; None: nothing tells."""

    @property
    def size(self) -> int:
        """Bytes that are needed."""
        return sum(need.size for need in self.needs)

    @property
    def inodes(self) -> int:
        """Inodes that are needed."""
        return sum(need.inodes for need in self.needs)

    @property
    def wanted(self) -> str:
        """What is needed, for people: "53 GiB and 320000 inodes free at /local/b (objects)"."""
        places = ", ".join(f"{need.path} ({need.what})" for need in self.needs)
        return f"{self.size / k3.GIB:.0f} GiB and {self.inodes} inodes free at {places}"

    @property
    def short(self) -> Optional[str]:
        """What there is instead, for people; None where it is enough, as far as is known."""
        if self.space is not None and (self.space.free_bytes < self.size or self.space.free_inodes < self.inodes):
            return f"{self.space.free_bytes / k3.GIB:.1f} GiB and {self.space.free_inodes} inodes"
        if self.quota is None:
            return None
        size, inodes = self.quota.free_bytes, self.quota.free_inodes
        told = [f"{size / k3.GIB:.1f} GiB"] if size is not None and size < self.size else []
        told += [f"{inodes} inodes"] if inodes is not None and inodes < self.inodes else []
        return f"a quota with {' and '.join(told)} left" if told else None


def needs(repo: str, build_root: Optional[str], caches: Iterable[str], *, compiled: bool, made: bool) -> list[Need]:
    """Return what a build writes where; `compiled`: something was there before; `made`: the environment is there.

    `caches` are directories that are not there yet.
    """
    objects = k3.OBJECTS_AGAIN if compiled else k3.OBJECTS
    package = k3.PACKAGE_AGAIN if made else k3.PACKAGE_FIRST
    return [
        Need(build_root or repo, "objects", *objects),
        Need(repo, "environment and libraries" if not made else "libraries", *package),
        *(Need(path, "caches", *k3.CACHES) for path in caches),
    ]


def look(machine: Machine, wanted: Sequence[Need]) -> tuple[Room, ...]:
    """Return the filesystems that something lands on, each with all of it."""
    by_device: dict[object, list[Need]] = {}
    places: dict[object, str] = {}
    for need in wanted:
        place = existing(machine, need.path)
        status = machine.stat(place)
        device = place if status is None else status.st_dev
        by_device.setdefault(device, []).append(need)
        places.setdefault(device, place)
    return tuple(
        Room(tuple(found), _space(machine, places[device]), _quota(machine, places[device]))
        for device, found in by_device.items()
    )


def existing(machine: Machine, path: str) -> str:
    """Return the deepest part of a path that is there; a build makes the rest."""
    while not machine.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _space(machine: Machine, path: str) -> Optional[Space]:
    try:
        return machine.space(path)
    except OSError:
        return None


def _quota(machine: Machine, path: str) -> Optional[Quota]:
    """Return what is left of quotas; who can't be asked in time forbids no build."""
    try:
        found: Union[Quota, Unreadable, None] = quota(machine, mounts.locality(machine, path).mount, path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, Quota) else None
