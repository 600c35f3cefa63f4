"""The processes of this machine and of the namespaces below it, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """A process."""

    pid: int
    """As this process sees it."""
    parent: int
    inner: tuple[int, ...]
    """Its pids from here down to its own namespace."""
    state: str
    """"R", "S", "T" and so on."""
    command: str


def all_processes() -> list[Process]:
    """Return what runs now, zombies left out."""
    found = (_read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [item for item in found if item is not None and item.state != "Z"]


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return None
    inner = tuple(int(word) for word in lines["NSpid"].split())
    return Process(pid, int(lines["PPid"]), inner, lines["State"].split()[0], command)


def namespace_of(pid: int) -> str:
    """Return the pid namespace of a process, or "" if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def environment_of(pid: int) -> bytes:
    """Return what a process was started with, variables ended by NUL, or nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has had so far, MiB; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:")), 0.0)
    except OSError:
        return 0.0
