"""What the checkout's requirements.txt pins, beside what is there of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Optional

from k3env.k3 import build as k3
from k3env.k3.pins import MATCHED
from k3env.node import requirements
from k3env.node.facts import packages as installed
from k3env.node.facts import venv as venvs
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile


@dataclass(frozen=True)
class Pinned:
    """Requirements that must hold exactly, and the versions that are seen."""

    requirements: dict[str, str] = field(default_factory=dict)
    """The line of requirements.txt, by name as indexes compare it."""
    versions: dict[str, str] = field(default_factory=dict)
    base_unseen: bool = False
    """Packages of an image are not seen: what is missing may be there."""
    venv: str = ""
    source: tuple[Evidence, ...] = ()


def pinned(machine: Machine, profile: Profile) -> Optional[Pinned]:
    """Read the lines of what Kimi K3's kernels are compiled against; None without checkout or environment."""
    repo, venv = profile.paths.repo, venvs.venv(machine, profile)
    if repo is None or venv is None or venv.unfinished:
        return None
    sites = installed.sites(machine, venv, repo, profile.container)
    path = os.path.join(repo, k3.REQUIREMENTS)
    text = machine.text(path) if machine.is_file(path) else ""
    lines = {name: requirements.line_of(machine, text, name, venv.version) for name in MATCHED}
    wanted = {name: line for name, line in lines.items() if line is not None}
    found = {name: version for name in wanted if (version := sites.version(name)) is not None}
    told = "\n".join(f"{name} {version}" for name, version in found.items())
    return Pinned(
        wanted, found, sites.base_unseen, sites.venv.path, (Evidence(path, excerpt="\n".join(wanted.values())),
        Evidence(sites.venv.site, excerpt=told)),
    )  # fmt: skip
