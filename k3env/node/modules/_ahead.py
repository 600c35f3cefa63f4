"""What pip_packages downloads beforehand, while a build keeps the node busy: repositories and submodules, and wheels.

Each requirement has a directory of its own on the node's own disk. git and pip are led there afterwards, with all that
they record unchanged: direct_url.json names the repository's own URL.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from k3env.errors import K3Error, Refused
from k3env.k3 import build as k3
from k3env.node import git
from k3env.node.ahead import Download
from k3env.node.container import wrap
from k3env.node.facts import interpreter
from k3env.node.mirrors import Commands, Mirrors
from k3env.node.modules import _around, _own_disk, _room
from k3env.node.modules._pip import ENVIRONMENT, refuse_credentials
from k3env.node.offline import Fetched, Mirror, Offline
from k3env.node.requirements import commit_of, for_pip, parse
from k3env.protocol import codec

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from k3env.node.machine import Machine
    from k3env.node.modules._pip import Pip
    from k3env.node.modules.pip_packages import PipPackages

DIRECTORY, DONE, WHEELS = "ahead", "done.json", "wheels"
BYTES, INODES = 4 * k3.GIB, 50_000
"""What must be free for a download: FlashInfer's mirrors and pip's clone of them, with room to spare."""
KEPT_S = 86400.0
"""How long what no task has used is left for a next run, seconds."""


@dataclass(frozen=True)
class Ready:
    """What is there beforehand."""

    places: tuple[str, ...]
    """The directories that it lies in."""
    mirrors: tuple[tuple[str, Mirror], ...]
    """Directory and mirror."""
    unfinished: tuple[str, ...] = ()
    """Directories of downloads that were cut off: of no use, and gigabytes."""

    def around(self, pip: Pip) -> Pip:
        """Return a pip that uses it; what is not in it, pip still downloads."""
        wheels = (os.path.join(place, WHEELS) for place in self.places)
        return replace(
            pip,
            container=_around.mounted(pip.container, *self.places),
            environment={**self._git(pip), **pip.environment},
            find_links=tuple(path for path in wheels if pip.machine.is_dir(path)),
        )

    def remove(self) -> None:
        """Remove it: it was used, or nothing will use it."""
        for place in (*self.places, *self.unfinished):
            shutil.rmtree(place, ignore_errors=True)

    def _git(self, pip: Pip) -> dict[str, str]:
        """Return what leads git to the mirrors. Other repositories are cloned from where they are."""
        if not self.mirrors:
            return {}
        count = pip.machine.environment.get("GIT_CONFIG_COUNT", "")
        mirrors = tuple(replace(mirror, path=os.path.join(place, mirror.path)) for place, mirror in self.mirrors)
        led = Offline("/", Fetched(mirrors=mirrors), "", int(count) if count.isdigit() else 0)
        # Submodules too: git clones none from a path by itself.
        around = led.git(protocol_file_allow="always")
        del around["GIT_ALLOW_PROTOCOL"]
        return around


def downloads(module: PipPackages, machine: Machine) -> tuple[Download, ...]:
    """Return what is worth downloading beforehand: what is not there as wanted, and is to be had from elsewhere.

    What is as wanted now, a build may put back to what its requirements say: then its task downloads it by itself.
    """
    base = _base(machine)
    if module.offline is not None or not base:
        return ()
    found, needs = [], _needs(machine, module.root, base)
    wanted = {change.what for change in module.changes(machine)}
    for needed in (needed for needed in map(parse, module.packages) if needed.name in wanted):
        commit, place = commit_of(needed), _place(base, needed, module.root)
        kind: type[_Bring]
        if needed.marker is not None or machine.is_file(os.path.join(place, DONE)):
            continue
        if commit is not None and not git.is_local(_url(needed)):
            what, kind = f"{needed.name} at {commit[:12]}", _Repository
        elif needed.url is None and not module.no_index:
            what, kind = for_pip(needed), _Wheel
        else:
            continue
        found.append(Download(what, machine, kind(needed, place, module, needs)))
    return tuple(found)


def ready(machine: Machine, needed: Iterable[Requirement], root: str) -> Ready:
    """Return what of these requirements was downloaded beforehand, for a task whose lease is that of `root`."""
    base = _base(machine)
    places, mirrors, unfinished = [], [], []
    for place in (_place(base, item, root) for item in needed) if base else ():
        if not machine.is_file(os.path.join(place, DONE)):
            unfinished += [place] if _is_own(place) else []
            continue
        try:
            machine.make(place)  # Refuses a stranger's.
            fetched: Fetched = codec.loads(Fetched, machine.text(os.path.join(place, DONE)))
        except (K3Error, OSError, ValueError):
            continue
        places.append(place)
        mirrors += [(place, mirror) for mirror in fetched.mirrors]
    return Ready(tuple(places), tuple(mirrors), tuple(unfinished))


def _is_own(place: str) -> bool:
    try:
        return os.lstat(place).st_uid == os.geteuid()
    except OSError:
        return False


@dataclass(frozen=True)
class _Bring:
    """Download one requirement."""

    needed: Requirement
    place: str
    module: PipPackages
    needs: tuple[_room.Need, ...]
    """What must be free, this first."""

    def __call__(self, machine: Machine) -> None:
        """Bring it into its place; raises K3Error or OSError where that can't be done."""
        machine.make(os.path.dirname(self.place))
        _sweep(os.path.dirname(self.place))
        self._refuse_narrow(machine)
        machine.make(self.place)
        fetched = Fetched(mirrors=self.bring(machine))
        machine.write(os.path.join(self.place, DONE), json.dumps(codec.encode(fetched)).encode())

    def bring(self, machine: Machine) -> tuple[Mirror, ...]:
        """Download, and return the mirrors that it came to."""
        raise NotImplementedError

    def _refuse_narrow(self, machine: Machine) -> None:
        """Raise Refused where there is no room beside what a build takes."""
        room = next(room for room in _room.look(machine, self.needs) if self.needs[0] in room.needs)
        if room.short is not None:
            raise Refused(
                f"room is left to the build: {room.wanted} are wanted, and there are {room.short}",
                expected=f"{room.wanted}", found=room.short, remedy="make room", id="ahead.space",
            )  # fmt: skip


class _Repository(_Bring):
    """A repository at a commit, with its submodules."""

    def bring(self, machine: Machine) -> tuple[Mirror, ...]:
        """Mirror it as a whole, as pip's clone has it: a build may ask for tags and history."""
        mirrors = Mirrors(Commands(self.place, machine), lfs=False)
        mirrors.whole(_url(self.needed), commit_of(self.needed) or "")
        return tuple(mirrors.made.values())


class _Wheel(_Bring):
    """A wheel by itself: what it needs is settled in the environment, which is still being made."""

    def bring(self, machine: Machine) -> tuple[Mirror, ...]:
        """Download it as the interpreter that makes the environment would."""
        on = _around.around(machine, self.module)
        is_here = on.container.engine == "none"
        # A favour gives up soon where nothing answers.
        environment = {**ENVIRONMENT, "PIP_RETRIES": "1", **on.environment}
        refuse_credentials(machine, environment)
        words = [interpreter.base_python(machine).path if is_here else "python3", "-u", "-m", "pip", "download"]
        words += ["--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--dest", os.path.join(self.place, WHEELS)]
        words += ["--index-url", self.module.index_url] if self.module.index_url else []
        for link in self.module.find_links:
            words += ["--find-links", link]
        argv = wrap(
            _own_disk.mounted(on.container, self.place),
            (*words, for_pip(self.needed)),
            environment=environment,
            workdir=self.place,
            name=machine.name,
        )
        Commands(self.place, machine).take(f"download {self.needed.name}", argv, "pip", environment)
        return ()


def _needs(machine: Machine, root: str, base: str) -> tuple[_room.Need, ...]:
    """Return what a download takes, and what the build beside it still does, if that compiles."""
    own = _room.Need(base, "downloads", BYTES, INODES)
    if not machine.is_file(os.path.join(root, k3.CMAKE_LISTS)):
        return (own,)
    compiled = machine.is_file(os.path.join(root, k3.CMAKE_CACHE))
    return (own, *_room.needs(root, None, (), compiled=compiled, made=compiled))


def _base(machine: Machine) -> str:
    own = _own_disk.base(machine)
    return os.path.join(own, DIRECTORY) if own else ""


def _place(base: str, needed: Requirement, root: str) -> str:
    """Return a requirement's directory: who has the lease of `root` has it alone."""
    named = f"{root}\0{for_pip(needed)}"
    return os.path.join(base, hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16])


def _url(needed: Requirement) -> str:
    return (needed.url or "")[len("git+") :].rpartition("@")[0]


def _sweep(directory: str) -> None:
    """Remove what no task has used for a long time."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if time.time() - os.lstat(path).st_mtime > KEPT_S:
            shutil.rmtree(path, ignore_errors=True)
