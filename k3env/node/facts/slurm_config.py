"""Slurm's configuration on this machine: where it is, and what it sets."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from typing import Optional

from k3env.node.machine import Machine

PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
"""Debian's and RHEL's, that of a configless slurmd, and that of older Debians."""
_FILES = 64


@dataclass(frozen=True)
class Config:
    """A slurm.conf and the files that it includes."""

    path: str
    values: dict[str, str]
    """By key in small letters; the last of several stands."""

    def get(self, key: str) -> str:
        """Return a value, or ""."""
        return self.values.get(key.lower(), "")

    def beside(self, name: str) -> str:
        """Return the path of another file of Slurm's."""
        return os.path.join(os.path.dirname(self.path), name)


def config(machine: Machine) -> Optional[Config]:
    """Read slurm.conf; None where there is none: a node without Slurm, or a client that asks slurmctld for it."""
    given = machine.environment.get("SLURM_CONF")
    path = next((place for place in ([given] if given else PLACES) if machine.is_file(place)), None)
    if path is None:
        return None
    values: dict[str, str] = {}
    for line in lines(machine, path):
        # Only whole-line settings are of interest; nodes and partitions have many on one line.
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"\w+", key.strip()):
            values[key.strip().lower()] = value.strip().strip("\"'")
    return Config(path, values)


def lines(machine: Machine, path: str) -> list[str]:
    """Return the lines of a file of Slurm's and of those that it includes, without comments.

    Source: slurm.conf(5) and spank(8): `include FILE`, relative to the file's directory; plugstack.conf takes globs.
    """
    found: list[str] = []
    waiting, seen = [path], 0
    while waiting and seen < _FILES:
        at, seen = waiting.pop(0), seen + 1
        text = re.sub(r"\\\n", "", machine.text(at))
        for line in text.splitlines():
            bare = re.sub(r"(?<!\\)#.*", "", line).strip()
            word, _, rest = bare.partition(" ")
            if word.lower() == "include" and rest.strip():
                waiting += _included(machine, os.path.join(os.path.dirname(at), rest.strip()))
            elif bare:
                found.append(bare)
    return found


def _included(machine: Machine, pattern: str) -> list[str]:
    """Return the files of a pattern; its directory may hold none."""
    directory, name = os.path.split(pattern)
    if not glob.has_magic(name):
        return [pattern] if machine.is_file(pattern) else []
    import fnmatch

    names = machine.list(directory) if machine.is_dir(directory) else ()
    return [os.path.join(directory, found) for found in names if fnmatch.fnmatchcase(found, name)]
