"""Quotas: how much a user may still write on a filesystem that has room for others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional, Union

from k3env.node.facts.mounts import Mount
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

ASK_S = 5.0
"""Seconds; of a network filesystem the server is asked."""
KIB = 1024
MMLSQUOTA = "/usr/lpp/mmfs/bin/mmlsquota"
_NUMBER = re.compile(r"\[?(\d+)\]?\*?\Z")
_GPFS = ("gpfs", "mmfs")


@dataclass(frozen=True)
class Quota:
    """What is left of the tightest limits on a filesystem, of this user and of its groups."""

    free_bytes: Optional[int] = None
    """None: no limit."""
    free_inodes: Optional[int] = None
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class _Limits:
    used: int
    soft: int
    hard: int

    @property
    def left(self) -> Optional[int]:
        """What may still be used; None: all. Beyond a soft limit writing goes on for days only."""
        limits = [limit for limit in (self.soft, self.hard) if limit]
        return max(0, min(limits) - self.used) if limits else None


def quota(machine: Machine, mount: Mount, path: str) -> Union[Quota, Unreadable, None]:
    """Ask what is left on a filesystem for what is written below a path; None where nothing there can be asked.

    Sources: quota(1) of quota-tools, `lfs quota` of Lustre, mmlsquota of GPFS; their numbers are KiB and files. statvfs
    knows of no user's limit, except of projects on XFS and ext4.
    """
    if machine.simulated:
        return None
    # New files get this group, or that of a directory with the setgid bit.
    status = machine.stat(path)
    groups = {os.getegid(), status.st_gid} if status is not None else {os.getegid()}
    rows: list[tuple[_Limits, _Limits]] = []
    asked: list[str] = []
    for argv in _questions(machine, mount, path, groups):
        done = machine.run(argv, timeout_s=ASK_S)
        if done.timed_out:
            return Unreadable(f"{argv[0]} gave no answer in {ASK_S:g} s", done.evidence())
        asked += [" ".join(argv), done.text]
        # quota(1) ends with 1 also where a limit is passed: what it says counts.
        rows += _gpfs(done.text, groups) if argv[0] == MMLSQUOTA else _table(done.text, mount)
    if not asked:
        return None
    source = Evidence(asked[0], None, excerpt("\n".join(asked[1:]).encode()))
    return Quota(_least(blocks.left for blocks, _ in rows), _least(files.left for _, files in rows), source)


def _questions(machine: Machine, mount: Mount, path: str, groups: set[int]) -> Iterator[tuple[str, ...]]:
    """Yield the commands that tell the limits, one after another: the last may follow from what one of them said."""
    ids = (("-u", str(machine.uid())), *(("-g", str(group)) for group in sorted(groups)))
    if mount.fstype == "lustre" and machine.which("lfs") is not None:
        project = machine.run(("lfs", "project", "-d", path), timeout_s=ASK_S).text.split()[:1]
        projects = [("-p", number) for number in project if number.isdigit() and number != "0"]
        for who in (*ids, *projects):
            yield ("lfs", "quota", "-q", *who, mount.point)
    elif mount.fstype in _GPFS and machine.which(MMLSQUOTA) is not None:
        yield (MMLSQUOTA, "-Y", mount.source.rpartition("/")[2])
    elif mount.fstype not in ("lustre", *_GPFS) and machine.which("quota") is not None:
        # One line a filesystem, named by where it is mounted; numbers for dates.
        options = ("--no-wrap", "--raw-grace", "-Q", "--hide-device", "--show-mntpoint")
        for who in ids:
            yield ("quota", *options, f"--filesystem={mount.point}", *who)


def _table(text: str, mount: Mount) -> Iterator[tuple[_Limits, _Limits]]:
    """Yield the rows of a filesystem: its name, then KiB used, soft, hard, grace, and files used, soft, hard, grace.

    lfs breaks the line after a long name.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        name, _, rest = line.strip().partition(" ")
        if name not in (mount.point, mount.source):
            continue
        words = rest.split() or (lines[number + 1].split() if number + 1 < len(lines) else [])
        numbers = [_NUMBER.match(word) for word in words[:8]]
        if len(words) < 7 or not all(numbers[at] for at in (0, 1, 2, 4, 5, 6)):
            continue
        used = [int(found[1]) if found else 0 for found in numbers]
        yield _Limits(used[0] * KIB, used[1] * KIB, used[2] * KIB), _Limits(used[4], used[5], used[6])


def _gpfs(text: str, groups: set[int]) -> Iterator[tuple[_Limits, _Limits]]:
    """Yield the rows of `mmlsquota -Y`: fields between colons, named by a line HEADER."""
    names: list[str] = []
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == "HEADER":
            names = fields
            continue
        row = dict(zip(names, fields))
        kind = row.get("quotaType")
        # A fileset's limit counts within it, and df shows it there.
        if kind != "USR" and not (kind == "GRP" and row.get("id") in {str(group) for group in groups}):
            continue
        try:
            block = _Limits(*(int(row[f"block{name}"]) * KIB for name in ("Usage", "Quota", "Limit")))
            yield block, _Limits(*(int(row[f"files{name}"]) for name in ("Usage", "Quota", "Limit")))
        except (KeyError, ValueError):
            continue


def _least(values: Iterator[Optional[int]]) -> Optional[int]:
    return min((value for value in values if value is not None), default=None)
