"""The caches of the rank that this process would be: where each variable of its environment leads."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional, Union

from k3env.k3 import caches
from k3env.node.facts import deadline
from k3env.node.facts.mounts import Mount, locality
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable
from k3env.protocol.profile import Profile

COUNTED = 4096
"""More cubins than this need not be counted."""
_RANKS = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_PROCID")


@dataclass(frozen=True)
class Where:
    """Where one cache lies."""

    owner: str
    variable: str
    path: str
    given: bool
    """Whether the environment says so; else it is the library's default."""
    mount: Union[Mount, Unreadable]
    """The filesystem that its data lies on."""
    is_first: bool = False


@dataclass(frozen=True)
class RankCaches:
    """The caches of one rank."""

    caches: tuple[Where, ...]
    rank: Optional[int] = None
    """Its number on this node; None: no launcher says one."""
    ranks_here: Optional[int] = None
    """How many ranks the node has; None: unknown."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Cubins:
    """FlashInfer's compiled kernels that are fetched, not compiled."""

    path: Optional[str]
    """Where they are looked for; None: in the package flashinfer-cubin, or below the workspace."""
    files: int = 0
    """How many are there, counted up to 4096."""
    source: tuple[Evidence, ...] = ()


@deadline(10.0)
def rank_caches(machine: Machine) -> RankCaches:
    """Read where each cache of this process would lie, and on which filesystem."""
    environment = machine.environment
    found = tuple(_where(machine, cache, environment) for cache in caches.CACHES)
    told = "\n".join(f"{item.variable}={item.path}{'' if item.given else ' (default)'}" for item in found)
    rank = next((environment[name] for name in _RANKS if environment.get(name, "").isdigit()), None)
    here = environment.get("SLURM_NTASKS_PER_NODE", "").partition("(")[0]
    return RankCaches(
        found,
        int(rank) if rank is not None else None,
        int(here) if here.isdigit() else None,
        (Evidence("environment", excerpt=told),),
    )


@deadline(10.0)
def cubins(machine: Machine, profile: Profile) -> Cubins:
    """Count the files in the directory of cubins that the rank would look into."""
    path = machine.environment.get(caches.CUBINS) or None
    if path is None and profile.paths.repo is not None:
        staged = os.path.join(profile.paths.repo, ".k3env", "cubins")
        path = staged if machine.is_dir(staged) else None
    if path is None:
        return Cubins(None, source=(Evidence("environment", excerpt=f"{caches.CUBINS} is not set"),))
    files = 0
    for _, _, names in os.walk(path):
        files += len(names)
        if files >= COUNTED:
            break
    return Cubins(path, files, (Evidence(path, excerpt=f"{files} files"),))


def path_of(cache: caches.Cache, environment: Mapping[str, str], user: str, home: str) -> tuple[str, bool]:
    """Return where a cache lies, and whether the environment says so; an empty value counts as none."""
    given = environment.get(cache.variable, "")
    text = given or cache.default
    if not given:
        for name, default in caches.DEFAULTS.items():
            text = text.replace(f"${name}", environment.get(name) or default)
    text = text.replace("{user}", user)
    if text == "~" or text.startswith("~/"):
        text = home + text[1:]
    return os.path.normpath(os.path.join(text, cache.below)), bool(given)


def _where(machine: Machine, cache: caches.Cache, environment: Mapping[str, str]) -> Where:
    user, home = _who(environment)
    path, given = path_of(cache, environment, user, home)
    mount: Union[Mount, Unreadable]
    if not os.path.isabs(path):
        mount = Unreadable(f"{cache.variable}={path} is no absolute path")
    else:
        try:
            mount = locality(machine, path).data
        except (OSError, ValueError) as error:
            mount = Unreadable(f"{path}: {error}")
    return Where(cache.owner, cache.variable, path, given, mount, cache.first)


def _who(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return user and home as libraries take them; a uid without an account, as in containers, has neither."""
    try:
        account = pwd.getpwuid(os.getuid())
        name, home = account.pw_name, account.pw_dir
    except KeyError:
        name, home = str(os.getuid()), "/"
    return environment.get("USER") or name, environment.get("HOME") or home
