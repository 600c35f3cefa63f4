"""A container that enroot has by name: a plain directory, read without starting anything."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import Optional

from k3env.node.facts import image as images
from k3env.node.facts.enroot import setting
from k3env.node.facts.interpreter import VERSIONED
from k3env.node.facts.packages import listed, version_of
from k3env.node.machine import Machine
from k3env.protocol.container import Container

ENVIRONMENT = "/etc/environment"
"""The image's own variables, PATH among them. Source: enroot's doc/image-format.md."""
USUAL = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LINKS = 40


@dataclass(frozen=True)
class Root:
    """The root directory of a container."""

    path: str

    def inside(self, machine: Machine, path: str) -> Optional[str]:
        """Return where a path of the container lies outside of it, links resolved as they are in there.

        None for what is not there, or goes round in circles. No link leads out of the container.
        """
        rest, real, links = [part for part in reversed(path.split("/")) if part not in ("", ".")], "", 0
        while rest:
            part = rest.pop()
            if part == "..":
                real = os.path.dirname(real) if real else ""
                continue
            found = machine.stat(f"{self.path}{real}/{part}", follow=False)
            if found is None:
                return None
            if not stat.S_ISLNK(found.st_mode):
                real = f"{real}/{part}"
                continue
            links += 1
            target = machine.readlink(f"{self.path}{real}/{part}")
            if target is None or links > _LINKS:
                return None
            real = "" if target.startswith("/") else real
            rest += [word for word in reversed(target.split("/")) if word not in ("", ".")]
        return f"{self.path}{real}"


@dataclass(frozen=True)
class Brought:
    """What a container's own Python is, and has installed."""

    python: str
    """"3.12"."""
    versions: dict[str, str]
    """By name, as indexes compare it."""


def root(machine: Machine, container: Container) -> Optional[Root]:
    """Return the root directory of a container that enroot has by name; None for a file, or where there is none.

    Source: enroot's runtime, which looks in ENROOT_DATA_PATH for names without a slash.
    """
    if container.engine != "enroot" or images.named(container) is not None or "/" in container.image:
        return None
    try:
        path = os.path.join(setting(machine, "ENROOT_DATA_PATH"), container.image)
    except ValueError:
        return None
    return Root(path) if machine.is_dir(path) else None


def brought(machine: Machine, container: Container) -> Optional[Brought]:
    """Read what a container's python3 has installed; None where that can't be told from its files."""
    found = root(machine, container)
    if found is None:
        return None
    python = _python(machine, found)
    version = python and VERSIONED.search(python)
    if not python or not version:
        return None
    versions: dict[str, str] = {}
    for place in _sites(machine, found, os.path.dirname(os.path.dirname(python)), version[1]):
        for name, infos in listed(machine, place).items():
            versions.setdefault(name, version_of(machine, place, infos[0]))
    return Brought(version[1], versions)


def shell(machine: Machine, container: Container) -> Optional[str]:
    """Return where a container's shell lies; None where there is none."""
    found = root(machine, container)
    return None if found is None else found.inside(machine, "/bin/sh")


def _python(machine: Machine, root: Root) -> Optional[str]:
    """Return the real path, in the container, of the python3 that its PATH leads to; none of a virtual environment."""
    for directory in _search_path(machine, root).split(":"):
        path = root.inside(machine, f"{directory}/python3") if directory.startswith("/") else None
        if path is None or not machine.is_file(path):
            continue
        above = os.path.dirname(directory.rstrip("/"))
        config = root.inside(machine, f"{above}/pyvenv.cfg") or root.inside(machine, f"{directory}/pyvenv.cfg")
        return None if config is not None else path[len(root.path) :]
    return None


def _search_path(machine: Machine, root: Root) -> str:
    path = root.inside(machine, ENVIRONMENT)
    text = machine.text(path) if path is not None and machine.is_file(path) else ""
    found = re.findall(r"(?m)^(?:export\s+)?PATH=([\"']?)(.*?)\1\s*$", text)
    return found[-1][1] if found else USUAL


def _sites(machine: Machine, root: Root, prefix: str, version: str) -> tuple[str, ...]:
    """Return where a Python of the container finds packages, outside of it, in its order.

    Source: CPython's and Debian's site.py: under /usr/local, then the prefix; site-packages or dist-packages.
    """
    bases = ("/usr/local", prefix) if prefix == "/usr" else (prefix,)
    places = (
        root.inside(machine, f"{base}/{lib}/{python}/{kind}")
        for base in bases
        for lib in ("lib", "lib64")
        for python in (f"python{version}", "python3")
        for kind in ("site-packages", "dist-packages")
    )
    return tuple(dict.fromkeys(place for place in places if place is not None and machine.is_dir(place)))
