"""Conflicts in a virtual environment: packages that can't be there together, or that hide the image's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Optional

from k3env.k3 import pins
from k3env.node import requirements
from k3env.node.facts import deadline, image_packages
from k3env.node.facts import packages as installed
from k3env.node.facts import venv as venvs
from k3env.node.facts.packages import Sites
from k3env.node.facts.venv import Venv
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile

SCRIPTS = ("trtllm-serve", "trtllm-llmapi-launch", "trtllm-eval", "trtllm-bench")
"""Entry points that jobs start."""
_SHEBANG_BYTES = 4096
_EXEC = re.compile("'''exec' (?:\"([^\"]+)\"|(\\S+)) ")


@dataclass(frozen=True)
class Companions:
    """Versions of packages that must fit each other, by name: the environment's own before its base's."""

    venv: str
    versions: dict[str, str] = field(default_factory=dict)
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class Shadows:
    """Packages of the environment that hide those which its base, the image, was built with."""

    venv: str
    hidden: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name to its version here and in the base."""
    base_seen: bool = True
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class Scripts:
    """Entry points, and the interpreter that each starts."""

    venv: str
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Those that start another interpreter than the environment's, which a moved or copied one still does."""
    there: tuple[str, ...] = ()
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class Unmet:
    """What installed packages require and is not there, as `pip check` says it."""

    venv: str
    packages: int
    unmet: dict[str, tuple[str, ...]] = field(default_factory=dict)
    base_unseen: bool = False
    source: Evidence = Evidence("")


def companions(machine: Machine, profile: Profile) -> Optional[Companions]:
    """Read the versions of FlashInfer's three packages and of those that own the module `fla`."""
    sites = _sites(machine, profile)
    if sites is None:
        return None
    found = {name: version for name in pins.COMPANIONS if (version := sites.version(name)) is not None}
    told = "\n".join(f"{name} {version}" for name, version in found.items())
    return Companions(sites.venv.path, found, Evidence(sites.venv.site, excerpt=told))


def shadows(machine: Machine, profile: Profile) -> Optional[Shadows]:
    """Look for protected packages that stand in the environment and in its base."""
    found = _venv(machine, profile)
    if found is None:
        return None
    own = installed.listed(machine, found.site)
    if not found.system_site_packages:
        return Shadows(found.path, source=Evidence(found.site, excerpt="it sees no packages but its own"))
    below = _below(machine, found, profile)
    if below is None:
        return Shadows(found.path, base_seen=False, source=Evidence(found.site))
    hidden = {
        name: (_version(infos[0]), below[name])
        for name, infos in own.items()
        if name in below and pins.is_protected(name)
    }
    return Shadows(found.path, hidden, source=Evidence(found.site, excerpt=f"{len(own)} packages"))


def scripts(machine: Machine, profile: Profile) -> Optional[Scripts]:
    """Read which interpreter the entry points name in their first line."""
    found = _venv(machine, profile)
    if found is None:
        return None
    bin_dir = os.path.join(found.path, "bin")
    there = tuple(name for name in SCRIPTS if machine.is_file(os.path.join(bin_dir, name)))
    elsewhere = {}
    for name in there:
        interpreter = _interpreter(machine.text(os.path.join(bin_dir, name), _SHEBANG_BYTES))
        if interpreter and "python" in interpreter and os.path.dirname(interpreter) != bin_dir:
            elsewhere[name] = interpreter
    return Scripts(found.path, elsewhere, there, Evidence(bin_dir, excerpt=" ".join(there) or "none of them"))


@deadline(20.0)
def unmet(machine: Machine, profile: Profile) -> Optional[Unmet]:
    """Compare what every package of the environment requires with what is there, without starting pip."""
    sites = _sites(machine, profile)
    if sites is None:
        return None
    missing: dict[str, tuple[str, ...]] = {}
    names = sorted(installed.listed(machine, sites.venv.site))
    for name in names:
        found = sites.distribution(name)
        if found is not None:
            lacking = requirements.unmet(found.requires, frozenset(), sites.version, sites.venv)
            if lacking:
                missing[name] = lacking
    source = Evidence(sites.venv.site, excerpt="\n".join(_lines(missing)))
    return Unmet(sites.venv.path, len(names), missing, sites.base_unseen, source)


def _lines(missing: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for name, lacking in missing.items():
        yield f"{name} requires {', '.join(lacking)}"


def _venv(machine: Machine, profile: Profile) -> Optional[Venv]:
    found = venvs.venv(machine, profile)
    return None if found is None or found.unfinished else found


def _sites(machine: Machine, profile: Profile) -> Optional[Sites]:
    found = _venv(machine, profile)
    return None if found is None else installed.sites(machine, found, _root(found, profile), profile.container)


def _below(machine: Machine, venv: Venv, profile: Profile) -> Optional[dict[str, str]]:
    """Return the versions of what an environment's base has; None for an image of which nothing is known."""
    if profile.container.engine != "none":
        known = image_packages.recorded(machine, _root(venv, profile), profile.container)
        return None if known is None or known.python != venv.version else known.versions
    below: dict[str, str] = {}
    for place in installed.base_sites(machine, venv):
        for name, infos in installed.listed(machine, place).items():
            below.setdefault(name, _version(infos[0]))
    return below


def _root(venv: Venv, profile: Profile) -> str:
    return profile.paths.repo or venvs.root_of(venv.path)


def _version(info: str) -> str:
    return info.rpartition(".")[0].partition("-")[2].partition("-")[0]


def _interpreter(text: str) -> Optional[str]:
    """Return the interpreter of a script's first line; pip writes long ones as `exec` in a script for sh."""
    first, _, rest = text.partition("\n")
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) in ("sh", "bash"):
        found = _EXEC.match(rest)
        return (found[1] or found[2]) if found else None
    return words[0] if words else None
