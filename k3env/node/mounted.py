"""Filesystems that a node itself says should be mounted: nothing is written below the mount point of one that is not.

A checkout that is made there lies on the node's own disk, looks as good as the shared one, and is lost from sight when
the filesystem comes back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from k3env.errors import Refused
from k3env.node.machine import Machine

FSTAB = "/etc/fstab"
UNITS = "/etc/systemd/system"


def refuse_unmounted(machine: Machine, paths: tuple[str, ...]) -> None:
    """Raise Refused where one of the paths would be written below the mount point of a filesystem that is missing.

    Without such an entry nothing is asked of the node's mounts; a path on a disk of its own is never in question.
    """
    for path in paths:
        whole = os.path.realpath(path)
        wanted = [(point, source) for point, source in _wanted(machine, whole) if point != "/"]
        if not wanted:
            continue
        from k3env.node.facts.mounts import mounts

        there = {mount.point for mount in mounts(machine)}
        for point, source in wanted:
            if point not in there:
                raise Refused(
                    f"{point} is not mounted, so {path} would be made on this node's own disk",
                    expected=f"the filesystem that {source} names",
                    found="no filesystem is mounted there",
                    remedy=f"mount {point}; see why it was lost: dmesg, systemctl --failed",
                    id="node.not_mounted",
                )


def _wanted(machine: Machine, path: str) -> Iterator[tuple[str, str]]:
    """Yield the mount points on the way to a path that are to be mounted at boot, and which file says so."""
    above = list(_ancestors(path))
    for line in machine.text(FSTAB).splitlines() if machine.exists(FSTAB) else ():
        words = line.split()
        if len(words) > 3 and not line.lstrip().startswith("#") and "noauto" not in words[3].split(","):
            point = os.path.normpath(_octal(words[1]))
            if point in above:
                yield point, FSTAB
    for point in above:
        unit = f"{UNITS}/{_unit(point)}"
        if machine.is_file(unit):
            yield point, unit


def _ancestors(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)


def _octal(word: str) -> str:
    r"""Return a field of fstab as it is meant: a space is \040 there. Source: fstab(5)."""
    return re.sub(r"\\([0-7]{3})", lambda matched: chr(int(matched[1], 8)), word)


def _unit(point: str) -> str:
    """Return the name of a mount point's unit. Source: String Escaping for Inclusion in Unit Names, systemd.unit(5)."""
    escaped = re.sub(rb"[^A-Za-z0-9:_./]", lambda matched: b"\\x%02x" % matched[0][0], os.fsencode(point.strip("/")))
    return f"{os.fsdecode(escaped).replace('/', '-')}.mount"
