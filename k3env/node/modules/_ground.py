"""Read the ground of a build: everything that `_before_build` judges, in the few seconds before the first minute."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional
from urllib.parse import urlsplit

from k3env.k3 import ages
from k3env.k3 import build as k3
from k3env.k3.pins import is_protected, normalised
from k3env.node import git_content, requirements
from k3env.node.facts import asked, egress, mounts, slurm_config, system
from k3env.node.facts.gpu import Gpu, gpus
from k3env.node.facts.script import Script
from k3env.node.facts.toolchain import Toolchain
from k3env.node.modules import _conan, _requirement_files, _room
from k3env.node.modules._before_build import Ground
from k3env.protocol.finding import Unreadable

if TYPE_CHECKING:
    from k3env.node.facts.build import Build
    from k3env.node.facts.egress import Configured
    from k3env.node.machine import Machine
    from k3env.node.modules.trtllm_build import TrtllmBuild
    from k3env.node.offline import Conan, Offline

GITHUB = "https://github.com"
INDEXES = ("https://pypi.org/simple", "https://download.pytorch.org/whl")
"""From where the first configuration and its requirements come. Source: 3rdparty and requirements.txt."""
FETCHED = "3rdparty/fetch_content.json"
CACHES = ("CONAN_HOME", "PIP_CACHE_DIR")
"""Where the build's environment leads its caches; without these they lie in the user's home."""


def look(
    machine: Machine,
    wanted: TrtllmBuild,
    found: Build,
    script: Script,
    toolchain: Toolchain,
    environment: dict[str, str],
) -> Ground:
    """Read all of it."""
    is_first = found.cmake_arch is None
    left = system.memory(machine)
    known = [value for value in (left.available, left.cpu_nodes, left.cgroup) if value is not None]
    filled = wanted.offline is None and _is_filled({**machine.environment, **environment})
    fetches = is_first and script.fetches_content and not filled and wanted.offline is None
    return Ground(
        wanted.repo,
        wanted.arch,
        script,
        toolchain,
        wanted.container.engine != "none",
        machine.is_file(os.path.join(wanted.repo, k3.CMAKE_LISTS)),
        machine.architecture() if wanted.container.engine != "none" else toolchain.architecture,
        _gpus(machine),
        _room.look(machine, _needs(machine, wanted, environment, compiled=not is_first, python=toolchain.python)),
        is_first,
        git_content.lfs_pointers(machine, wanted.repo),
        git_content.absent_submodules(machine, wanted.repo),
        wanted.jobs,
        min(known, default=None),
        _torch(machine, wanted.repo, toolchain.python),
        _own_torch(machine, wanted.repo, toolchain.python),
        _out_of_reach(machine, wanted, {**machine.environment, **environment}, toolchain.ways) if fetches else (),
        None if wanted.on_login_node else _login_node(machine),
        asked.architectures(_text(machine, wanted.repo, k3.CUDA_MODULE)),
        _requires_python(machine, wanted.repo),
        git_content.left_out(machine, wanted.repo, (k3.CMAKE_LISTS, *k3.GUIDES)),
        _lacking(machine, wanted, {**machine.environment, **environment}, toolchain) if is_first else (),
        _conan.unwritable(environment.get(_conan.VARIABLE, "")),
        _requirement_files.wrong(machine, wanted.repo),
        _noexec(machine, wanted.repo),
    )


def _noexec(machine: Machine, repo: str) -> Optional[str]:
    """Return the mount of the checkout if it is noexec; where that can't be read, it forbids no build."""
    try:
        mount = mounts.locality(machine, repo).mount
    except (OSError, ValueError):
        return None
    return mount.point if mount.noexec else None


def _gpus(machine: Machine) -> tuple[Gpu, ...]:
    """Return the node's GPUs; a host that builds may have none, and a driver that hangs is another check's."""
    found = gpus(machine).nvml
    return () if isinstance(found, Unreadable) else found


def _needs(
    machine: Machine, wanted: TrtllmBuild, environment: dict[str, str], *, compiled: bool, python: str
) -> list[_room.Need]:
    """Return what the build writes where; caches that are there already grow by what can't be told."""
    places = (environment.get(name) for name in CACHES)
    new = [path for path in dict.fromkeys(places) if path and not (machine.is_dir(path) and machine.list(path))]
    made = machine.is_dir(ages.environment(python, wanted.repo))
    return _room.needs(wanted.repo, wanted.build_root, new[:1], compiled=compiled, made=made)


def _torch(machine: Machine, repo: str, python: str) -> Optional[str]:
    return requirements.line_of(machine, _text(machine, repo, k3.REQUIREMENTS), "torch", python)


def _requires_python(machine: Machine, repo: str) -> Optional[str]:
    said = re.search(r"\bpython_requires\s*=\s*[\"']([^\"']*)[\"']", _text(machine, repo, "setup.py"))
    return said[1] if said else None


def _text(machine: Machine, repo: str, name: str) -> str:
    path = os.path.join(repo, name)
    return machine.text(path) if machine.is_file(path) else ""


def _own_torch(machine: Machine, repo: str, python: str) -> bool:
    return machine.is_dir(
        os.path.join(ages.environment(python, repo), "lib", f"python{python}", "site-packages", "torch")
    )


def sources(machine: Machine, repo: str) -> tuple[tuple[str, ...], bool]:
    """Return the repositories that CMake would clone, and whether it would fetch archives too."""
    path = os.path.join(repo, FETCHED)
    urls, archives = egress.source_urls(machine.text(path) if machine.is_file(path) else None, GITHUB)
    return urls or (f"{GITHUB}/",), archives


def _out_of_reach(
    machine: Machine, wanted: TrtllmBuild, environment: dict[str, str], configured: Configured
) -> tuple[str, ...]:
    """Return the hosts that the first configuration would look for and not find."""
    urls, archives = sources(machine, wanted.repo)
    ways = [*egress.for_git(urls, environment, configured), *egress.for_pip(INDEXES, environment, configured)]
    ways += [egress.for_cmake(urlsplit(GITHUB).netloc, environment)] if archives else []
    return egress.unreached(ways)


def _lacking(
    machine: Machine, wanted: TrtllmBuild, environment: dict[str, str], toolchain: Toolchain
) -> tuple[tuple[str, str], ...]:
    """Return what the directory that serves instead of the network does not hold, with what to do."""
    directory = wanted.offline
    if directory is None:
        return ()
    from k3env.node import offline

    found = offline.use(machine, directory)
    told = list(_unfetched(machine, wanted, found, toolchain))
    told += [(f"{directory} lacks {name}: {why}", found.remedy()) for name, why in found.fetched.missing.items()]
    if found.conan is not None:
        told += _lacking_conan(machine, found.conan, environment.get(_conan.VARIABLE, ""), directory, toolchain)
    return tuple(told)


def _unfetched(
    machine: Machine, wanted: TrtllmBuild, found: Offline, toolchain: Toolchain
) -> Iterator[tuple[str, str]]:
    """Say which requirements neither the image nor a wheel meets; an environment that is there may, and is pip's."""
    from k3env.node.modules import _wheelhouse

    if machine.is_dir(os.path.join(wanted.repo, f".venv-{toolchain.python}")):
        return
    needed = _wheelhouse.required(_wheelhouse.read_in(machine, wanted.repo), k3.INSTALLED)
    installed = {normalised(name): version for name, version in toolchain.installed.items()}
    advice = found.remedy(toolchain.python)
    for images, remedy in ((False, advice), (True, f"use an image that brings it; or, {advice} --image-packages")):
        some = [item for item in needed if is_protected(item.name) is images]
        told = _wheelhouse.unfetched(found, some, toolchain.python, installed)
        if told:
            yield f"{found.directory} lacks {_wheelhouse.shown(told)}", remedy


def _lacking_conan(
    machine: Machine, conan: Conan, home: str, directory: str, toolchain: Toolchain
) -> tuple[tuple[str, str], ...]:
    """Say where conan's packages are neither fetched nor in conan's home, or are another compiler's."""
    if conan.archive is None:
        if _conan.is_filled(machine, home):
            return ()
        own = _conan.configured(machine)
        far = f", not {own}, which is on a network filesystem" if own not in (None, home) else ""
        return ((f"{directory} lacks conan's packages, and CONAN_HOME, here {home}{far}, holds none", conan.remedy),)
    compiler = (toolchain.tools.get("c++") or conan.gcc).partition(".")[0]
    if compiler == conan.gcc or not home.endswith(conan.archive.sha256[:12]):
        return ()
    from k3env.node import offline

    advice = offline.Offline(directory, offline.Fetched(), machine.architecture()).remedy()
    return ((f"conan's packages are for gcc {conan.gcc}, and c++ there is {compiler}", f"{advice} --gcc {compiler}"),)


def _is_filled(environment: dict[str, str]) -> bool:
    """Return whether sources come from a cache that was filled beforehand."""
    cache = environment.get("TRTLLM_FETCHCONTENT_CACHE", "")
    return bool(cache and os.path.isdir(cache) and os.listdir(cache)) or "GITHUB_MIRROR" in environment


def _sees_all(machine: Machine) -> bool:
    """Return whether processes of other users can be seen: the first one is root's."""
    try:
        return bool(machine.text("/proc/1/comm"))
    except OSError:
        return False


def _login_node(machine: Machine) -> Optional[str]:
    """Return why this looks like a login node: Slurm is configured here, and no slurmd takes its jobs.

    In a job's step slurmstepd is around, so that a node of one is never taken for a login node; nor is one that hides
    the processes of others (hidepid).
    """
    if "SLURM_JOB_ID" in machine.environment:
        return None
    config = next((path for path in slurm_config.PLACES if machine.is_file(path)), None)
    if config is None:
        return None
    if not _sees_all(machine):
        return None
    for pid in machine.list("/proc"):
        if pid.isdecimal():
            try:
                if machine.text(f"/proc/{pid}/comm").strip() in ("slurmd", "slurmstepd"):
                    return None
            except OSError:
                continue
    return f"a login node: {config} is here, and no slurmd runs"
