"""pip_packages: packages in an environment, exactly as pinned; commits are proven, not read off version numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from k3env.k3.pins import CUBIN, EXTRAS, FLASHINFER, JIT_CACHE, is_protected, normalised
from k3env.node.modules import Module
from k3env.node.modules._parameters import NETRC, check_path, has_credentials
from k3env.node.modules._pending import FLAGS, Pending, flag_for
from k3env.node.requirements import applies, commit_of, described, for_pip, parse, shortcoming, unmet
from k3env.protocol.container import Container
from k3env.protocol.finding import Change, Finding

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from k3env.node.ahead import Download
    from k3env.node.facts.packages import Sites
    from k3env.node.facts.venv import Venv
    from k3env.node.machine import Machine
    from k3env.node.modules._pip import Pip
    from k3env.protocol.profile import Profile


@dataclass(frozen=True)
class PipPackages(Module):
    """Install packages into a virtual environment, those alone that are not as wanted.

    Before anything is installed, a dry run says what would move; a package that the image brings (torch, triton,
    CUDA, CuTeDSL, TensorRT) is never moved. Only for a commit without dependencies there is no dry run: it would
    clone the repository twice, and nothing but that package can move.
    """

    packages: tuple[str, ...]
    """Requirements as pip takes them. A git repository is pinned by all 40 digits of a commit."""
    venv: Optional[str] = None
    """The environment; or name `checkout`."""
    checkout: Optional[str] = None
    """The TensorRT LLM checkout whose environment is meant: `.venv-X.Y`, by the base interpreter's version."""
    no_deps: bool = False
    """Install nothing but these packages; what they declare and miss is named."""
    no_build_isolation: bool = False
    """Build with what is in the environment."""
    force_reinstall: bool = False
    """Where something is to be installed, install it anew. What is as wanted is left alone all the same."""
    no_cache: bool = False
    """Neither use nor fill pip's cache: a wheel of one CUDA version is not taken for another's."""
    no_index: bool = False
    """Use `find_links` alone."""
    index_url: Optional[str] = None
    """The package index; unset: pip's own configuration. No password stands in it: those of
    `~/.netrc` are used."""
    find_links: tuple[str, ...] = ()
    """More places with wheels: directories or pages."""
    if_asked_by: Optional[str] = None
    """A TensorRT LLM checkout: unless its README or guide installs FlashInfer from a repository, nothing is done."""
    environment: dict[str, str] = field(default_factory=dict)
    """Added to pip's environment."""
    container: Container = Container()
    """The image that the environment's Python belongs to."""
    offline: Optional[str] = None
    """A directory that `invoke fetch` has filled: what is in it is used, and nothing else."""
    inactivity_s: float = 1800.0
    """How long pip may neither say nor compute anything, seconds."""

    def __post_init__(self) -> None:
        if (self.venv is None) == (self.checkout is None):
            raise ValueError("name the environment: either `venv` or `checkout`")
        check_path("venv" if self.checkout is None else "checkout", self.checkout or self.venv or "")
        for name in ("if_asked_by", "offline"):
            if getattr(self, name) is not None:
                check_path(name, getattr(self, name))
        if not self.packages:
            raise ValueError("packages names none")
        wanted = [parse(text) for text in self.packages]
        for needed in wanted:
            if has_credentials(needed.url or ""):
                raise ValueError(f"{needed.name}: a URL here must hold no password: use a credential helper")
        names = [normalised(needed.name) for needed in wanted]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"packages names {twice} twice")
        if self.no_index and (self.index_url or not self.find_links):
            raise ValueError("no_index needs find_links, and no index_url")
        for place in (self.index_url or "https://", *self.find_links):
            if has_credentials(place):
                raise ValueError(f"a URL of an index must hold no name and password: {NETRC}")
            if not re.match(r"https?://|file://|/", place):
                raise ValueError(f"expected a URL or an absolute path, found {place!r}")

    @property
    def root(self) -> str:
        """The checkout, also where only its environment is named; else the environment."""
        from k3env.node.facts.venv import root_of

        return self.checkout or root_of(self.venv or "")

    def writes(self) -> tuple[str, ...]:
        """Return the checkout's root, or the environment."""
        return (self.root,)

    def disturbs(self) -> tuple[str, ...]:
        """Return the checkout, or the environment."""
        return (self.root,)

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return the packages that are not as wanted, read from their metadata: pip is not started.

        Raises Refused for a package that is installed twice over, and for one that `offline` lacks.
        """
        if not self._is_asked_for(machine):
            return ()
        venv = self._venv(machine)
        if venv is None or venv.unfinished:
            wanted = tuple(map(parse, self.packages))
            self._refuse_unfetched(machine, wanted, self._version(machine) if venv is None else venv.version)
            return tuple(Change(needed.name, "absent", described(needed)) for needed in wanted)
        pending = self._pending(machine, venv)
        self._refuse_unfetched(machine, (item.needed for item in pending), venv.version)
        return tuple(Change(item.needed.name, item.before, described(item.needed)) for item in pending)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Say what would move, then install what is not as wanted.

        Raises Refused if a protected package would move, or if the environment can't be installed into; TaskFailed with
        the log's path, its tail, and what it means if pip fails.
        """
        from k3env.node.modules._around import explained

        with explained(machine, self.offline, lambda: getattr(self._venv(machine), "version", None)):
            self._install(machine)

    def _install(self, machine: Machine) -> None:
        from k3env.node.modules import _ahead
        from k3env.node.modules._pip import record_versions, usable

        venv = usable(self._venv(machine), self._where(machine) or f"of {self.root}")
        pip = self._pip(machine, venv, own_cache=True)
        pip.see_image()
        pending = self._pending(machine, venv)
        ready = _ahead.ready(machine, (item.needed for item in pending), self.root) if self.offline is None else None
        pip = ready.around(pip) if ready is not None else pip
        self._refuse_moves(pip, tuple(item.needed for item in pending))
        for flag in FLAGS:
            texts = [for_pip(item.needed) for item in pending if item.flag == flag]
            if texts:
                pip.install(_title(texts), *self._flags(*((flag, "--no-deps") if flag else ())), *texts)
        if not self.no_deps:
            self._complete(pip, tuple(item.needed for item in pending if item.flag))
        record_versions(machine, self.root, self._sites(machine, venv))
        if ready is not None:
            ready.remove()

    def ahead(self, machine: Machine) -> tuple[Download, ...]:
        """Return the repositories with their submodules, and the wheels, that are to be downloaded."""
        from k3env.node.modules import _ahead

        return _ahead.downloads(self, machine)

    def foresee(self, machine: Machine) -> None:
        """Tell what the directory used instead of the network does not hold, before a build of an hour.

        Of what an image may bring, that is not known yet; commits and what Kimi K3 adds are always fetched.

        Raises Refused.
        """
        if self.offline is None or not self._is_asked_for(machine):
            return
        venv = self._venv(machine)
        if venv is None or venv.unfinished:
            needed, python = tuple(map(parse, self.packages)), self._version(machine)
        else:
            needed, python = tuple(item.needed for item in self._pending(machine, venv)), venv.version
        added = [item for item in needed if item.url is not None or normalised(item.name) in EXTRAS]
        self._refuse_unfetched(machine, added, python)

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return which packages are there, and from where."""
        if not self._is_asked_for(machine):
            return (f"neither README nor guide of {self.if_asked_by} installs FlashInfer from a repository",)
        venv = self._venv(machine)
        if venv is None:
            return ()
        sites, told = self._sites(machine, venv), []
        for needed in map(parse, self.packages):
            found = sites.distribution(needed.name)
            if found is not None:
                told.append(f"{found.name} {found.origin}")
            elif applies(needed, venv):
                told.append(f"{needed.name} is the image's own")
            else:
                told.append(f"{needed.name} is not for this Python or processor")
        return tuple(told)

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Name what packages that were installed without dependencies declare that they need, and that is not there."""

        if not self.no_deps or not self._is_asked_for(machine):
            return ()
        venv = self._venv(machine)
        if venv is None or venv.unfinished:
            return ()
        sites, findings = self._sites(machine, venv), []
        if sites.base_unseen:
            return ()
        for needed in map(parse, self.packages):
            found = sites.distribution(needed.name)
            missing = unmet(found.requires, frozenset(needed.extras), sites.version, venv) if found else ()
            if missing:
                findings.append(_missing(needed.name, missing, sites, venv))
        return tuple(findings)

    def _complete(self, pip: Pip, forced: tuple[Requirement, ...]) -> None:
        """Install what packages need that were installed by themselves."""
        sites = self._sites(pip.machine, pip.venv)
        missing: list[str] = []
        for needed in forced:
            found = sites.distribution(needed.name)
            missing += unmet(found.requires, frozenset(needed.extras), sites.version, pip.venv) if found else ()
        if missing:
            self._refuse_moves(pip, tuple(map(parse, missing)))
            pip.install(_title(missing), *self._flags(), *missing)

    def _is_asked_for(self, machine: Machine) -> bool:
        from k3env.node.facts.checkout import asks_for_fork

        # A checkout that is still to be made may ask for it.
        if self.if_asked_by is None or not machine.is_dir(self.if_asked_by):
            return True
        return asks_for_fork(machine, self.if_asked_by)

    def _where(self, machine: Machine) -> Optional[str]:
        from k3env.node.facts import venv
        from k3env.node.modules._pip import cannot_find_python

        if self.checkout is None:
            return self.venv
        try:
            return venv.find(machine, self.checkout, self.container)
        except FileNotFoundError as error:
            raise cannot_find_python(error) from None

    def _version(self, machine: Machine) -> Optional[str]:
        """Return the Python of an environment that a build is still to make, if its name says it."""
        from k3env.node.facts.venv import NAMED

        named = NAMED.match(os.path.basename(self._where(machine) or ""))
        return named[1] if named else None

    def _venv(self, machine: Machine) -> Optional[Venv]:
        from k3env.node.facts import venv

        path = self._where(machine)
        return None if path is None else venv.read(machine, path, in_image=self.container.engine != "none")

    def _sites(self, machine: Machine, venv: Venv) -> Sites:
        from k3env.node.facts.packages import sites

        return sites(machine, venv, self.root, self.container)

    def _pip(self, machine: Machine, venv: Venv, own_cache: bool = False) -> Pip:
        """Return the environment's pip; with its cache on the node's own disk, whose directories are made for it."""
        from k3env.node.modules._around import around
        from k3env.node.modules._pip import Pip

        on = around(machine, self)
        container, environment = on.container, dict(on.environment)
        if own_cache and not self.no_cache:
            from k3env.node.modules import _own_disk

            disk = _own_disk.of(machine, self.root, container, environment)
            cache = disk.caches.get("PIP_CACHE_DIR")
            if cache is not None:
                disk.make(machine)
                container, environment["PIP_CACHE_DIR"] = disk.container, cache
        return Pip(machine, venv, self.root, container, environment, self.inactivity_s)

    def _refuse_unfetched(self, machine: Machine, needed: Iterable[Requirement], python: Optional[str]) -> None:
        """Raise Refused for what the directory used instead of the network does not hold."""
        from k3env.node.modules._around import opened
        from k3env.node.modules._wheelhouse import refuse_unfetched

        if self.offline is None:
            return
        # What more places hold is theirs to say.
        wanted = [item for item in needed if item.url is not None or not self.find_links]
        refuse_unfetched(opened(machine, self.offline), wanted, python)

    def _pending(self, machine: Machine, venv: Venv) -> tuple[Pending, ...]:
        """Return the requirements that are not met, and how each falls short."""
        from k3env.node.facts.packages import Distribution
        from k3env.node.modules._pip import refuse_several

        sites, pending = self._sites(machine, venv), []
        image: Optional[dict[str, str]] = None
        for needed in map(parse, self.packages):
            if not applies(needed, venv):
                continue
            refuse_several(sites, needed.name)
            found = sites.distribution(needed.name)
            if found is None and needed.url is None and sites.base_unseen:
                image = self._pip(machine, venv).versions_in_image() if image is None else image
                version = image.get(normalised(needed.name))
                found = Distribution(normalised(needed.name), version, "") if version else None
            before = shortcoming(needed, found)
            if before is not None:
                pending.append(Pending(needed, before, flag_for(needed, found)))
        return tuple(pending)

    def _flags(self, *more: str) -> tuple[str, ...]:
        """Return pip's flags, each once."""
        switches = (
            ("--no-deps", self.no_deps),
            ("--no-build-isolation", self.no_build_isolation),
            ("--force-reinstall", self.force_reinstall),
            ("--no-cache-dir", self.no_cache),
            ("--no-index", self.no_index),
        )
        words = list(dict.fromkeys((*more, *(word for word, wanted in switches if wanted))))
        if self.index_url:
            words += ["--index-url", self.index_url]
        for place in self.find_links:
            words += ["--find-links", place]
        return tuple(words)

    def _refuse_moves(self, pip: Pip, wanted: tuple[Requirement, ...]) -> None:
        """Let pip say what it would install, tell it, and refuse what must not move."""
        from k3env.errors import Refused
        from k3env.node.modules._pip import refuse_moves, refuse_unlike

        sites = self._sites(pip.machine, pip.venv)
        commits = {needed.name: commit_of(needed) for needed in wanted} if self.no_deps else {}
        moves = {normalised(name): f"commit {commit[:12]}" for name, commit in commits.items() if commit}
        asked = [for_pip(needed) for needed in wanted if not commits.get(needed.name)]
        if asked and pip.can_resolve(sites):
            moves.update(pip.resolution("see what installing would move", *self._flags(), *asked))
        elif asked and not self.no_deps:
            raise Refused(
                "this environment's pip can't say what an installation would move",
                expected="pip 22.2 or later", found=f"pip {sites.version('pip')}",
                remedy=f"{pip.venv.python} -m pip install -U pip, or set no_deps: true", id="pip.too_old",
            )  # fmt: skip
        is_seen = not sites.base_unseen or not any(map(is_protected, moves))
        image = {} if is_seen else pip.versions_in_image()

        def version_of(name: str) -> Optional[str]:
            return sites.version(name) or image.get(name)

        told = (f"{name} {version_of(name) or 'absent'} → {after}" for name, after in sorted(moves.items()))
        pip.machine.progress(f"would install {'; '.join(told)}")
        refuse_moves(moves, version_of)
        for needed in wanted:
            is_beside = any(name in moves or version_of(name) for name in (CUBIN, JIT_CACHE))
            if needed.name == FLASHINFER and is_beside and pip.can_resolve(sites):
                # Of which version a commit is, only its own metadata says.
                alone = (*self._flags("--force-reinstall", "--no-deps"), for_pip(needed))
                found = pip.resolution("see which version of FlashInfer that is", *alone).get(FLASHINFER)
                if found is not None:
                    refuse_unlike(pip.venv, found, moves, version_of)


def _title(requirements: list[str]) -> str:
    return f"install {', '.join(parse(text).name for text in requirements)}"


def _missing(name: str, missing: tuple[str, ...], sites: Sites, venv: Venv) -> Finding:
    found = [f"{text} ({sites.version(parse(text).name) or 'absent'})" for text in missing]
    return Finding(
        "pip.requirements", "warn", "warn", subject=name,
        message=f"{name} was installed without its dependencies, and declares what is not there: {', '.join(found)}",
        expected=", ".join(missing), found=", ".join(found),
        remedy=f"{venv.python} -m pip install --no-deps {' '.join(repr(text) for text in missing)}",
    )  # fmt: skip
