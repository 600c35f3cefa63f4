"""Root writes to no network filesystem: what it leaves there is nobody's own, or is refused halfway by root squash."""

from __future__ import annotations

import os

from k3env.errors import Refused
from k3env.node.facts.mounts import NETWORK, containing, data_mount, mounts
from k3env.node.machine import Machine


def refuse_root(machine: Machine, paths: tuple[str, ...]) -> None:
    """Raise Refused where root would write one of these paths to a network filesystem.

    Whether another user may write there is not judged by mode bits: the lease beside a path is made by that user, and
    that is the first thing that is written.
    """
    if os.geteuid() != 0 or not paths:
        return
    try:
        table = mounts(machine)
    except OSError:
        return  # without /proc nothing is known of mounts
    for path in paths:
        mount = data_mount(table, containing(table, _existing(path)), machine)
        if mount.kind == NETWORK:
            raise Refused(
                f"root must not write {path}: it lies on {mount.fstype}, which other nodes and users share",
                expected="the user whose files these are",
                found=f"root, and {mount.source} mounted at {mount.point}",
                remedy="set k3_user to that user (or become_user of the task), or connect as that user",
                id="task.root_on_network",
            )


def _existing(path: str) -> str:
    existing = os.path.realpath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    return existing
