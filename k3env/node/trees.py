"""Processes with all that they started: to end them, and to leave behind those that do not end."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_PAUSES_S = (0.0, 0.001, 0.01, 0.1)


def end_tree(pid: int) -> None:
    """End a child and all that it started, in whatever session; what is in an endless wait stays."""
    for number in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)


def reap(pids: list[int]) -> None:
    """Collect those children that have ended; what is in an endless wait stays."""
    for pause in _PAUSES_S:
        if not pids:
            return
        time.sleep(pause)
        pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]


def descendants(pid: int) -> list[int]:
    """Return what a process started, what that started, and so on: field 4 of /proc/PID/stat is the parent."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read(4096).rpartition(b")")[2].split()[1])
                parents.setdefault(parent, []).append(int(name))
    found = [pid]
    for number in found:
        found += parents.get(number, [])
    return found[1:]
