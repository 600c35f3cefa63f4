"""Offline: the directory that `invoke fetch` fills on a host with egress, and what lets git, pip and CMake use it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional
from urllib.parse import quote

from k3env.errors import Refused
from k3env.protocol import codec

if TYPE_CHECKING:
    from k3env.node.machine import Machine

FORMAT = 1
MANIFEST, GIT, WHEELS, ARCHIVES, CONANS = "manifest.json", "git", "wheels", "archives", "conan"
"""What lies in the directory: the manifest, bare mirrors, a directory of wheels for each target, archives by the path
of their URL on GitHub, and conan's packages for each processor."""
GITHUB = "https://github.com"
CONAN = "conan's packages"
"""What the older ages of the build load from a remote, for people."""
_MANIFEST_BYTES = 1 << 26


@dataclass(frozen=True)
class Wheel:
    """A wheel, or a source distribution where no wheel could be had."""

    file: str
    name: str
    version: str
    size: int
    sha256: str
    url: str = ""
    """Where it came from."""


@dataclass(frozen=True)
class Mirror:
    """A bare mirror of a git repository."""

    url: str
    path: str
    """In the directory."""
    commits: tuple[str, ...]
    """Those that were asked for, with their submodules and Git LFS files."""


@dataclass(frozen=True)
class Archive:
    """A source archive."""

    url: str
    path: str
    """In the directory."""
    size: int
    sha256: str


@dataclass(frozen=True)
class Conan:
    """conan's packages for one processor."""

    asked: str
    """Hash of what was asked for."""
    gcc: str
    """The compiler that they are for: "13"."""
    archive: Optional[Archive] = None
    """Of the cache in a home of conan; None: they could not be had."""
    packages: tuple[str, ...] = ()
    missing: str = ""
    """Why they could not be had."""
    remedy: str = ""
    """What fills a home of conan by hand."""


@dataclass(frozen=True)
class Wheelhouse:
    """Wheels for one processor and Python."""

    asked: str
    """Hash of what was asked for: unchanged, it is not resolved anew."""
    wheels: tuple[Wheel, ...]
    image: tuple[str, ...] = ()
    """Packages that were left to the image."""
    source: dict[str, str] = field(default_factory=dict)
    """Packages that are there as source alone, and why."""
    missing: dict[str, str] = field(default_factory=dict)
    """Packages that could not be had for this target, and why."""


@dataclass(frozen=True)
class Fetched:
    """What a directory holds; written last, so all of it is there."""

    wheelhouses: dict[str, Wheelhouse] = field(default_factory=dict)
    """By target: "aarch64-3.12"."""
    mirrors: tuple[Mirror, ...] = ()
    archives: tuple[Archive, ...] = ()
    conans: dict[str, Conan] = field(default_factory=dict)
    """By processor."""
    missing: dict[str, str] = field(default_factory=dict)
    """Sources that could not be had, and why."""
    made: str = ""
    """RFC 3339, UTC."""
    format: int = FORMAT

    def mirror(self, url: str) -> Optional[Mirror]:
        """Return the mirror of a URL."""
        return next((mirror for mirror in self.mirrors if _plain(mirror.url) == _plain(url)), None)


@dataclass(frozen=True)
class Offline:
    """A directory that is used instead of the network."""

    directory: str
    fetched: Fetched
    arch: str
    """Of this node: "aarch64"."""
    settings: int = 0
    """How many settings of git stand in the environment already (GIT_CONFIG_COUNT)."""

    def environment(self) -> dict[str, str]:
        """Return what has pip, git and CMake use the directory, and nothing else."""
        return {**self.pip(), **self.git(), **self.build()}

    def pip(self) -> dict[str, str]:
        """Return pip's part. The places are URLs: pip parts its list of them at blanks."""
        places = [self.url(WHEELS, name) for name in sorted(self.fetched.wheelhouses) if self.serves(name)]
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": " ".join(places)}

    def git(self, **more: str) -> dict[str, str]:
        """Return git's part; `more` are settings, `_` for their dots. The user's own configuration stays as it is.

        Source: git-config(1): GIT_CONFIG_COUNT, url.<base>.insteadOf, of which the longest match counts;
        git(1): GIT_ALLOW_PROTOCOL.
        """
        settings = [
            (f"url.{self.url(mirror.path)}.insteadOf", alias)
            for mirror in self.fetched.mirrors
            for alias in self._aliases(mirror.url)
        ]
        settings += [(name.replace("_", "."), value) for name, value in more.items()]
        variables = {"GIT_ALLOW_PROTOCOL": "file", "GIT_CONFIG_COUNT": str(self.settings + len(settings))}
        for at, (key, value) in enumerate(settings, self.settings):
            variables[f"GIT_CONFIG_KEY_{at}"], variables[f"GIT_CONFIG_VALUE_{at}"] = key, value
        return variables

    def build(self) -> dict[str, str]:
        """Return the build's part.

        TensorRT LLM's FetchContent clones from the mirrors by git's settings. Its archives lie as on GitHub.
        Source: 3rdparty/CMakeLists.txt, GITHUB_MIRROR.
        """
        return {"GITHUB_MIRROR": self.url(ARCHIVES), "HF_HUB_OFFLINE": "1"}

    @property
    def conan(self) -> Optional[Conan]:
        """conan's packages for this node; None where nothing that was fetched asks for any."""
        return self.fetched.conans.get(self.arch)

    def require(self, url: str, commit: str) -> Mirror:
        """Return the mirror of a repository that holds a commit.

        Raises Refused, naming what fetches it.
        """
        mirror = self.fetched.mirror(url)
        if mirror is None or commit not in mirror.commits:
            what = "the repository" if mirror is None else f"the commit {commit}"
            raise Refused(
                f"{self.directory} does not hold {what} of {url}",
                expected=f"a mirror with {commit}",
                found="none" if mirror is None else f"one with {', '.join(mirror.commits)}",
                remedy=self.remedy(),
                id="offline.git",
            )
        return mirror

    def remedy(self, python: Optional[str] = None) -> str:
        """Return the command that adds what is not in the directory, for a Python such as "3.12"."""
        words = f"invoke fetch --directory {self.directory} --arch {self.arch}{f' --python {python}' if python else ''}"
        return f"on a host with egress, with this site's variables: {words}"

    def serves(self, target: str) -> bool:
        """Return whether a target's wheels are for this node's processor."""
        return target.startswith(f"{self.arch}-")

    def url(self, *parts: str) -> str:
        """Return the URL of what is in the directory."""
        return "file://" + quote(os.path.join(self.directory, *parts))

    def _aliases(self, url: str) -> tuple[str, ...]:
        """Return the spellings of a repository's URL, among them the one below GITHUB_MIRROR."""
        plain = _plain(url)
        spelt = [plain, f"{plain}.git"]
        if plain.startswith(f"{GITHUB}/"):
            spelt += [self.url(ARCHIVES) + end[len(GITHUB) :] for end in spelt]
        return tuple(spelt)


def path(directory: str) -> str:
    """Return where a directory's manifest is."""
    return os.path.join(directory, MANIFEST)


def read(machine: Machine, directory: str) -> Optional[Fetched]:
    """Return what a directory holds; None where nothing was ever finished there.

    Raises Refused for what is no manifest of this format.
    """
    try:
        found = codec.loads(Fetched, machine.text(path(directory), _MANIFEST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise Refused(
            f"{path(directory)} is not what this k3env writes", expected=f"a manifest of format {FORMAT}",
            found=str(error)[:200],
            remedy="use the k3env that wrote it; or remove that file and run `invoke fetch`: what is whole is kept",
            id="offline.manifest",
        ) from None  # fmt: skip
    return found if isinstance(found, Fetched) else None


def use(machine: Machine, directory: str) -> Offline:
    """Return a directory to use instead of the network.

    Raises Refused where nothing finished is there, nothing for this node's processor, or a file is cut off.
    """
    arch = machine.architecture()
    count = machine.environment.get("GIT_CONFIG_COUNT", "")
    fetched = read(machine, directory)
    offline = Offline(directory, fetched or Fetched(), arch, int(count) if count.isdigit() else 0)
    if fetched is None:
        raise Refused(
            f"{directory} holds nothing that was fetched to its end",
            expected=f"what `invoke fetch` writes last, {MANIFEST}", found="none",
            remedy=f"{offline.remedy()}; then copy it here, or mount it", id="offline.absent",
        )  # fmt: skip
    if not any(map(offline.serves, fetched.wheelhouses)):
        raise Refused(
            f"{directory} holds no wheels for {arch}",
            expected=f"wheels for {arch}", found=", ".join(sorted(fetched.wheelhouses)) or "none",
            remedy=offline.remedy(), id="offline.arch",
        )  # fmt: skip
    _refuse_cut(machine, offline)
    return offline


def _refuse_cut(machine: Machine, offline: Offline) -> None:
    """Raise Refused for files that are not there as they were fetched: a copy of the directory may be under way."""
    houses = {name: house for name, house in offline.fetched.wheelhouses.items() if offline.serves(name)}
    files = {
        os.path.join(WHEELS, name, item.file): item.size for name, house in houses.items() for item in house.wheels
    }
    conan = offline.conan.archive if offline.conan is not None else None
    archives = (*offline.fetched.archives, *((conan,) if conan is not None else ()))
    files.update({item.path: item.size for item in archives})
    for mirror in offline.fetched.mirrors:
        if not _has_objects(machine, os.path.join(offline.directory, mirror.path)):
            raise _cut(offline, mirror.path, f"a mirror of {mirror.url}", "nothing, or a part of one")
    for name, size in files.items():
        found = machine.stat(os.path.join(offline.directory, name))
        if found is None or found.st_size != size:
            there = "nothing there" if found is None else f"{found.st_size} bytes"
            raise _cut(offline, name, f"{size} bytes", there)


def _cut(offline: Offline, name: str, expected: str, found: str) -> Refused:
    target = name.split("/")[1] if name.startswith(f"{WHEELS}/") else ""
    return Refused(
        f"{offline.directory} is not whole: {name}", expected=expected, found=found,
        remedy=f"copy it again (rsync -a); or, {offline.remedy(target.rpartition('-')[2] or None)}", id="offline.cut",
    )  # fmt: skip


def _has_objects(machine: Machine, mirror: str) -> bool:
    """Return whether a bare repository has what git needs to take it for one, and something in it."""
    objects = os.path.join(mirror, "objects")
    if not machine.is_file(os.path.join(mirror, "HEAD")) or not machine.is_dir(objects):
        return False
    packs = os.path.join(objects, "pack")
    packed = machine.list(packs) if machine.is_dir(packs) else ()
    loose = (name for name in machine.list(objects) if len(name) == 2)
    return any(name.endswith(".pack") for name in packed) or next(loose, None) is not None


def _plain(url: str) -> str:
    url = url.rstrip("/")
    return url[:-4] if url.endswith(".git") else url
