"""Filling a directory: mirrors, wheels, archives, and last of all the manifest that says what is there."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from k3env.errors import TaskFailed, UsageError
from k3env.fetching import conan, sources
from k3env.fetching.commands import Commands
from k3env.fetching.target import Target
from k3env.fetching.wheels import Wheels, digest, sound
from k3env.node import offline
from k3env.node.machine import Machine
from k3env.node.mirrors import Mirrors
from k3env.node.offline import ARCHIVES, CONAN, GITHUB, WHEELS, Archive, Conan, Fetched, Wheelhouse
from k3env.protocol import codec

_ARCHIVE_S = 60.0


@dataclass(frozen=True)
class Asked:
    """What nodes will ask for."""

    target: Target
    repositories: tuple[tuple[str, str], ...] = ()
    """URL and commit of each TensorRT LLM checkout, whose requirements and sources are wanted too."""
    pinned: tuple[tuple[str, str], ...] = ()
    """URL and commit of packages that pip installs from git."""
    if_asked: tuple[tuple[str, str], ...] = ()
    """The same, fetched where one of the checkouts asks for FlashInfer from a repository."""
    packages: tuple[str, ...] = ()
    """Requirements, each by itself, without what it depends on."""
    image_packages: bool = False
    """Fetch also what the image brings."""


@dataclass(frozen=True)
class Filled:
    """What a fetch came to."""

    fetched: Fetched
    house: Wheelhouse
    new: tuple[str, ...]
    """Wheels and archives that were not there before, or not as they were fetched."""
    conan: Conan | None = None
    """Of this target; None where nothing loads any."""

    @property
    def missing(self) -> dict[str, str]:
        """What could not be had, and why."""
        found = self.conan
        conan = {CONAN: f"{found.missing}; {found.remedy}"} if found is not None and found.missing else {}
        return {**self.house.missing, **self.fetched.missing, **conan}


def fill(directory: str, asked: Asked, tell: Callable[[str], object] = lambda text: None) -> Filled:
    """Fill a directory; what an earlier fetch has finished is left alone.

    Raises UsageError for a directory that can't be used, TaskFailed where git or pip fails.
    """
    machine = Machine(name=time.strftime("%Y%m%d-%H%M%S"), on_progress=lambda text, part: tell(text))
    with _locked(directory), tempfile.TemporaryDirectory(dir=directory, prefix=".work-") as work:
        before = offline.read(machine, directory) or Fetched()
        return _Filling(Commands(directory, machine), asked, before, Path(work), tell).run()


@dataclass
class _Filling:
    commands: Commands
    asked: Asked
    before: Fetched
    work: Path
    tell: Callable[[str], object]
    missing: dict[str, str] = field(default_factory=dict)
    archives: dict[str, Archive] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)

    def run(self) -> Filled:
        mirrors = Mirrors(self.commands, {mirror.url: mirror for mirror in self.before.mirrors})
        self.archives = {archive.url: archive for archive in self.before.archives}
        reads: list[sources.Read] = []
        for url, commit in self.asked.repositories:
            path = mirrors.whole(url, commit)
            read = partial(mirrors.read, path, commit)
            reads.append(read)
            self._sources(read, mirrors)
        wanted = self.asked.if_asked if any(map(sources.asks_for_fork, reads)) else ()
        for url, commit in (*self.asked.pinned, *wanted):
            mirrors.whole(url, commit)
        conans = self._conans(reads)
        house = self._wheels(reads)
        fetched = Fetched(
            wheelhouses={**self.before.wheelhouses, self.asked.target.name: house},
            mirrors=tuple({**mirrors.known, **mirrors.made}.values()),
            archives=tuple(self.archives.values()),
            conans=conans,
            missing=self.missing,
            made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        if replace(fetched, made="") != replace(self.before, made=""):
            text = json.dumps(codec.encode(fetched), indent=1, sort_keys=True) + "\n"
            self.commands.machine.write(offline.path(self.commands.directory), text.encode())
        return Filled(fetched, house, tuple(self.new), conans.get(self.asked.target.arch))

    def _conans(self, reads: list[sources.Read]) -> dict[str, Conan]:
        """Return conan's packages by processor, this target's as they are now."""
        wanted = [item for read in reads if (item := conan.wanted(read)) is not None]
        arch, before = self.asked.target.arch, dict(self.before.conans)
        if not wanted:
            before.pop(arch, None)
            return before
        known = before.get(arch)
        found = conan.Packages(self.commands, self.asked.target, self.work).fetch(wanted, known)
        if found.archive is not None and found is not known:
            self.new.append(found.archive.path)
        return {**before, arch: found}

    def _sources(self, read: sources.Read, mirrors: Mirrors) -> None:
        wanted, untold = sources.dependencies(read)
        self.missing.update(untold)
        for item in wanted:
            try:
                if item.archive:
                    self._archive(item)
                else:
                    mirrors.at_revision(item.url, item.revision)
            except TaskFailed as error:
                self.missing[item.name] = str(error)

    def _archive(self, item: sources.Dependency) -> None:
        url = f"{GITHUB}/{item.path}"
        place = os.path.join(ARCHIVES, item.path)
        target = Path(self.commands.directory, place)
        known = self.archives.get(url)
        if known is not None and target.is_file() and digest(target) == known.sha256:
            return
        self.tell(f"fetch {url}")
        fresh = self.work / "archive"
        try:
            with urllib.request.urlopen(url, timeout=_ARCHIVE_S) as answer, fresh.open("wb") as file:  # noqa: S310
                shutil.copyfileobj(answer, file)
        except (OSError, urllib.error.URLError) as error:
            raise TaskFailed(f"{url} can't be fetched: {error}", id="fetch.archive") from None
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(fresh, target)
        self.archives[url] = Archive(url, place, target.stat().st_size, digest(target))
        self.new.append(place)

    def _wheels(self, reads: list[sources.Read]) -> Wheelhouse:
        target = self.asked.target
        files: list[Path] = []
        tools = [] if reads else list(sources.TOOLS)
        for number, read in enumerate(reads):
            first = sources.requirements(read, self.work / f"checkout-{number}")
            files += [first] if first else []
            tools += sources.tools(read)
        found = hashlib.sha256(repr((self.asked, tools, _texts(files))).encode()).hexdigest()
        known = self.before.wheelhouses.get(target.name)
        if known is not None and known.asked == found and self._whole(known):
            return known
        wheels = Wheels(self.commands, target, self.work, self.asked.image_packages)
        wheels.kept = {wheel.file: wheel for wheel in known.wheels} if known else {}
        before = set(wheels.kept)
        for file in files:
            wheels.add(f"what {file.name} asks for", (), (file,))
        wheels.add("what builds it", list(dict.fromkeys(tools)))
        if self.asked.packages:
            wheels.add(", ".join(self.asked.packages), self.asked.packages, deps=False)
        self.new += [name for name in wheels.kept if name not in before or name in wheels.placed]
        kept = tuple(wheels.kept[name] for name in sorted(wheels.kept))
        return Wheelhouse(found, kept, tuple(sorted(wheels.image)), wheels.source, wheels.missing)

    def _whole(self, house: Wheelhouse) -> bool:
        place = Path(self.commands.directory, WHEELS, self.asked.target.name)
        return all(sound(place / wheel.file, wheel) for wheel in house.wheels)


def _texts(files: list[Path]) -> list[str]:
    """Return what requirement files say, with those beside them."""
    return [
        path.read_text(encoding="utf-8")
        for file in files
        for path in sorted(file.parent.rglob("*"))
        if path.is_file()
    ]  # fmt: skip


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Hold a directory; what a fetch that was cut off left of its work is removed.

    Raises UsageError where it can't be written, or another fetch fills it.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        file = open(os.path.join(directory, ".lock"), "w", encoding="utf-8")  # noqa: SIM115 - held to the end
    except OSError as error:
        raise UsageError(
            f"{directory} can't be filled: {error.strerror}", expected="a directory that you may write in",
            found=directory, remedy="give another one: --directory DIR",
        ) from None  # fmt: skip
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another fetch fills {directory}", expected="one at a time", found="its lock is held",
                remedy="wait for it, or end it",
            ) from None  # fmt: skip
        for old in Path(directory).glob(".work-*"):
            shutil.rmtree(old, ignore_errors=True)
        yield
