"""What a rank finds around it, in its container or on the node: the driver's libraries, programs, /tmp."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import Optional, Union

from k3env.node.facts import deadline
from k3env.node.facts.mounts import locality
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
PROGRAMS = ("bash", "ps", "openssl", "python3", "python")
"""What trtllm-llmapi-launch calls by these names."""
TMP = "/tmp"  # noqa: S108
LOADED = "/sys/module/nvidia/version"

_ANSWER_S = 5.0
# Loads a library as ranks do, and prints which file that was.
_LOAD = """import ctypes, sys
name = sys.argv[1]
ctypes.CDLL(name)
stem = name.split(".so")[0]
paths = [line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if len(line.split(None, 5)) == 6]
print(next(path for path in paths if path.rpartition("/")[2].startswith(stem)))
"""


@dataclass(frozen=True)
class Library:
    """One library of the driver's, as this process would load it."""

    name: str
    path: Optional[str] = None
    """The file that the loader took, its links resolved; None: it could not be loaded."""
    version: Optional[str] = None
    """By the file's name: "580.105.08"."""
    reason: str = ""
    """Why it could not be loaded, in the loader's words."""
    empty: tuple[str, ...] = ()
    """Files of that name without content, which container tools leave as places for mounts."""


@dataclass(frozen=True)
class Libraries:
    """The driver's libraries beside the loaded driver."""

    found: Union[tuple[Library, ...], Unreadable]
    driver: Optional[str]
    """Version of the loaded driver; None: none is loaded."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Programs:
    """Which of the programs that a rank's launcher calls are in PATH."""

    missing: tuple[str, ...]
    source: Evidence


@dataclass(frozen=True)
class Tmp:
    """The directory /tmp as this process sees it."""

    fstype: str
    uid: int
    mode: int
    ours: int
    """This process's user."""
    free_bytes: int
    source: tuple[Evidence, ...] = ()


@deadline(3 * _ANSWER_S)
def libraries(machine: Machine) -> Libraries:
    """Load the driver's libraries in children, and see which files the loader takes.

    Source: the loader itself, /proc/self/maps, and /sys/module/nvidia/version for what they must fit.
    """
    try:
        driver: Optional[str] = machine.text(LOADED, 256).strip()
    except (FileNotFoundError, NotADirectoryError):
        driver = None
    python = machine.which("python3")
    if python is None:
        return Libraries(Unreadable("no python3 in PATH to load them with"), driver)
    libraries, sources = [], [Evidence(LOADED, excerpt=driver or "no such file")]
    for name in LIBRARIES:
        done = machine.run(("python3", "-I", "-S", "-c", _LOAD, name), timeout_s=_ANSWER_S)
        sources.append(Evidence(f"dlopen {name}", done.exit_code, excerpt(done.stdout + done.stderr)))
        if done.timed_out or done.exit_code is None:
            return Libraries(Unreadable(f"loading {name}: no answer after {_ANSWER_S:g} s", sources[-1]), driver)
        libraries.append(_library(machine, name, done.text.strip() if done.ok else None, excerpt(done.stderr)))
    return Libraries(tuple(libraries), driver, tuple(sources))


@deadline(2.0)
def programs(machine: Machine) -> Programs:
    """Look for the launcher's programs in PATH."""
    missing = tuple(name for name in PROGRAMS if machine.which(name) is None)
    return Programs(missing, Evidence("PATH", excerpt=machine.environment.get("PATH", "")))


@deadline(3.0)
def tmp(machine: Machine) -> Union[Tmp, Unreadable]:
    """Read what /tmp is here; in a container of enroot's it is a tmpfs of its own. Source: mountinfo, stat, statvfs."""
    status = machine.stat(TMP)
    if status is None:
        return Unreadable(f"{TMP} is not there", Evidence(TMP, excerpt="no such directory"))
    mount = locality(machine, TMP).mount
    mode = stat.S_IMODE(status.st_mode)
    told = f"{mount.fstype} at {mount.point}, uid {status.st_uid}, mode {mode:04o}"
    return Tmp(
        mount.fstype, status.st_uid, mode, os.geteuid(), machine.space(TMP).free_bytes, (Evidence(TMP, excerpt=told),)
    )


def _library(machine: Machine, name: str, path: Optional[str], said: str) -> Library:
    stem = name.partition(".so")[0]
    if path is None:
        reason = said.rpartition("\n")[2].partition("Error: ")[2] or said.rpartition("\n")[2] or "it says nothing"
        return Library(name, reason=reason, empty=_empty(machine, stem))
    real = machine.realpath(path)
    version = re.fullmatch(rf"{re.escape(stem)}\.so\.(\d+\.\d+(?:\.\d+)?)", os.path.basename(real))
    return Library(name, real, version.group(1) if version else None)


def _empty(machine: Machine, stem: str) -> tuple[str, ...]:
    """Return the empty files where loaders look; without one, nothing tells why a library is not found."""
    here = machine.architecture()
    places = (f"/usr/lib/{here}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/cuda/compat")
    found = []
    for place in places:
        names = machine.list(place) if machine.is_dir(place) else ()
        paths = [os.path.join(place, name) for name in names if name.startswith(f"{stem}.so")]
        for path in paths:
            status = machine.stat(path)
            if status is not None and status.st_size == 0:
                found.append(path)
    return tuple(found)
