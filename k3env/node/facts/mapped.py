"""Mapped: the processes of this node that have files of a checkout, or of its environment, in their memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from k3env.node.facts import deadline
from k3env.node.machine import Machine

LOOK_S = 8.0
"""How long it may take to look at all processes: one whose memory is being taken apart holds up whoever reads it."""
_MAPS_BYTES = 1 << 25
_JOB = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """A process that has such a file in its memory."""

    pid: int
    user: str
    command: str
    file: str
    """The first of them."""
    since: Optional[float] = None
    """When it began, seconds since the epoch."""
    job: str = ""
    """The Slurm job whose cgroup it is in."""


@dataclass(frozen=True)
class Mapped:
    """What was seen."""

    processes: tuple[Process, ...]
    hidden: int = 0
    """Processes of other users, whose memory only root may look at."""


def mapped(roots: Sequence[str]) -> Callable[[Machine], Mapped]:
    """Return the fact: who has files below these directories in memory.

    Source: /proc/PID/maps; a process in a container is seen by the path that the file has there.
    """

    @deadline(LOOK_S)
    def look(machine: Machine) -> Mapped:
        paths = dict.fromkeys(path for root in roots for path in (root, os.path.realpath(root)))
        needles = tuple(b" " + os.fsencode(path).replace(b"\n", b"\\012") + b"/" for path in paths)
        found, hidden = [], 0
        for name in machine.list("/proc"):
            if not name.isdecimal() or int(name) == os.getppid():
                continue
            try:
                maps = machine.read(f"/proc/{name}/maps", _MAPS_BYTES)
            except PermissionError:
                hidden += 1
                continue
            except OSError:
                continue  # it has ended
            file = next((_file(maps, needle) for needle in needles if needle in maps), None)
            if file is not None:
                found.append(_process(machine, int(name), file))
        return Mapped(tuple(found), hidden)

    return look


def _file(maps: bytes, needle: bytes) -> str:
    begin = maps.index(needle) + 1
    end = maps.find(b"\n", begin)
    return maps[begin : end if end >= 0 else None].decode("utf-8", "replace")


def _process(machine: Machine, pid: int, file: str) -> Process:
    user, command, since, job = "", "", None, ""
    try:
        user = _user(machine.stat(f"/proc/{pid}"))
        command = machine.text(f"/proc/{pid}/comm").strip()
        words = machine.text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        booted = re.search(r"^btime (\d+)$", machine.text("/proc/stat"), re.MULTILINE)
        since = int(booted[1]) + int(words[19]) / os.sysconf("SC_CLK_TCK") if booted else None
        inside = _JOB.search(machine.text(f"/proc/{pid}/cgroup"))
        job = inside[1] if inside else ""
    except (OSError, IndexError, ValueError):
        pass  # what is known of it by now must do
    return Process(pid, user, command, file, since, job)


def _user(status: Optional[os.stat_result]) -> str:
    import pwd

    if status is None:
        return ""
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return f"uid {status.st_uid}"


def told(process: Process) -> str:
    """Return a process as a person reads it."""
    words = [f"{process.command or 'a process'} (pid {process.pid}", f"of {process.user or 'somebody'}"]
    words += [f"job {process.job}"] if process.job else []
    if process.since is not None:
        words.append(time.strftime("since %Y-%m-%dT%H:%M:%SZ", time.gmtime(process.since)))
    return f"{', '.join(words)}), which has {process.file} in memory"
