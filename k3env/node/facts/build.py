"""Build: what a build left in a checkout, and how that differs from what is wanted."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Optional

from k3env.k3 import build as k3
from k3env.node import manifest as manifests
from k3env.node.machine import Machine
from k3env.node.manifest import Manifest
from k3env.protocol.finding import Change, Evidence
from k3env.protocol.profile import Profile

_ELF = b"\x7fELF"
_FEW = 3
_CACHED = re.compile(
    r"(?m)^(CMAKE_CUDA_ARCHITECTURES|CMAKE_HOME_DIRECTORY|CMAKE_BUILD_TYPE|NVRTC_DYNAMIC_LINKING|Python3?_EXECUTABLE)"
    r":[^=\n]*=(.*)$"
)
_ON = ("ON", "1", "TRUE", "YES", "Y")


@dataclass(frozen=True)
class Build:
    """What is left of the last build."""

    root: str
    cmake_arch: Optional[str]
    """What CMakeCache.txt says; None: nothing was configured."""
    cmake_home: Optional[str]
    """Where that was configured."""
    missing: tuple[str, ...]
    """Artefacts that a whole build leaves, and that are not there."""
    altered: tuple[str, ...]
    """Artefacts that are not as the manifest recorded them."""
    manifest: Optional[Manifest]
    source: tuple[Evidence, ...] = ()
    cached: dict[str, str] = field(default_factory=dict)
    """All that is read of CMakeCache.txt: also build type, Python, how NVRTC is linked."""


def build(machine: Machine, profile: Profile) -> Optional[Build]:
    """Read the build in the checkout that the profile names; None where there is no checkout."""
    repo = profile.paths.repo
    return None if repo is None or not machine.is_dir(repo) else look(machine, repo)


def objects_of(build_root: Optional[str], repo: str) -> str:
    """Return where the objects of a checkout are compiled to; "": in the checkout. Two checkouts never share one."""
    if build_root is None:
        return ""
    import hashlib

    return os.path.join(build_root, f"cpp-build-{hashlib.sha256(repo.encode()).hexdigest()[:12]}")


def look(machine: Machine, root: str, objects: Optional[str] = None) -> Build:
    """Read what is left of the last build in a checkout; `objects` is where the next one compiles to: see objects_of.

    Where the last one compiled to the disk of another node, only the manifest says for which architecture.
    """
    return machine.recall(("build", root, objects), lambda: _look(machine, root, objects))


def _look(machine: Machine, root: str, objects: Optional[str]) -> Build:
    made = manifests.read(machine, root)
    last = made.build_dir if made else ""
    place = last if objects is None else objects
    cached = cmake_cache(machine, root, place)
    if made is not None and last and last == place and not cached and objects is None:
        cached = {"CMAKE_CUDA_ARCHITECTURES": made.cmake_arch}
    python = made.python if made else ""
    recorded = dict(made.artefacts) if made else {}
    tree = Tree(machine, root)
    there = artefacts(machine, root, recorded, tree)
    gone = [path for path in recorded if path not in there]
    wanted = wanting(machine, root, python, place, tree)
    return Build(
        root,
        cached.get("CMAKE_CUDA_ARCHITECTURES"),
        cached.get("CMAKE_HOME_DIRECTORY"),
        (*gone, *(pattern for pattern in wanted if not any(fnmatchcase(path, pattern) for path in gone))),
        tuple(path for path, status in there.items() if recorded.get(path, status) != status),
        made,
        (
            Evidence(_cache(root, place), None, "\n".join("=".join(item) for item in cached.items())),
            Evidence(manifests.path(root), None, f"commit {made.commit}, {made.arch}" if made else "absent"),
        ),
        cached,
    )


def differences(found: Build, *, commit: Optional[str], arch: str, image: Optional[str] = None) -> tuple[Change, ...]:
    """Return how a build differs from the wanted one; None: any commit, any image.

    That it is of a commit, only the manifest can say; all else is said by what is there.
    """
    made = found.manifest
    if made is None:
        before = "absent" if found.cmake_arch is None else f"of an unknown commit, for {found.cmake_arch}"
        return (Change("build", before, f"of commit {commit or 'HEAD'}, for {arch}"),)
    changes = []
    if commit is not None and made.commit != commit:
        changes.append(Change("build's commit", made.commit, commit))
    if image is not None and made.image != image:
        changes.append(Change("build's image", made.image or "none", image or "none"))
    if not same_arch(found, arch):
        changes.append(Change("CMAKE_CUDA_ARCHITECTURES", found.cmake_arch or "not configured", arch))
    elif made.arch != arch:
        changes.append(Change("build's architecture", made.arch, arch))
    if not same_home(found):
        changes.append(
            Change("CMake's source directory", found.cmake_home or "", os.path.join(found.root, k3.CMAKE_HOME))
        )
    if changes:
        return tuple(changes)
    return (*_listed(found.missing, "gone, or no library"), *_listed(found.altered, "not as it was built"))


def same_arch(found: Build, arch: str) -> bool:
    """Return whether CMake is configured for an architecture, as given, or as it rewrote that itself."""
    made = found.manifest
    rewritten = made is not None and made.arch == arch and found.cmake_arch == made.cmake_arch
    return found.cmake_arch is not None and (found.cmake_arch == arch or rewritten)


def same_home(found: Build) -> bool:
    """Return whether CMake is configured at this path, if it is; a checkout that was moved can't be built on."""
    here = os.path.join(found.root, k3.CMAKE_HOME)
    return found.cmake_home is None or os.path.realpath(found.cmake_home) == os.path.realpath(here)


def stale(found: Build, *, arch: str, environment: str, dynamic_nvrtc: bool) -> tuple[str, ...]:
    """Return in what CMake is configured otherwise than this build is to be; nothing where it never was.

    The script configures only once by itself, so that another architecture, Python or NVRTC is silently ignored.
    Source: scripts/build_wheel.py before #19339, and CMakeCache.txt.
    """
    if found.cmake_arch is None:
        return ()
    kind = found.cached.get("CMAKE_BUILD_TYPE", "Release")
    pythons = {found.cached.get(name) for name in ("Python_EXECUTABLE", "Python3_EXECUTABLE")} - {None, ""}
    others = sorted(path for path in pythons if path and os.path.dirname(os.path.dirname(path)) != environment)
    linked = found.cached.get("NVRTC_DYNAMIC_LINKING", "OFF").upper() in _ON
    told = (
        None if same_arch(found, arch) else f"architecture {found.cmake_arch}",
        None if kind in ("Release", "") else f"build type {kind}",
        f"Python {others[0]}" if others else None,
        "a static NVRTC" if dynamic_nvrtc and not linked else None,
    )
    return tuple(text for text in told if text is not None)


class Tree:
    """The directories of a checkout, each listed once: on a network filesystem each time is a round trip."""

    def __init__(self, machine: Machine, root: str) -> None:
        self._machine, self._root = machine, root
        self._listed: dict[str, tuple[str, ...]] = {}

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the names in a directory; none where there is no such directory."""
        if directory not in self._listed:
            try:
                names = self._machine.list(os.path.join(self._root, directory))
            except (FileNotFoundError, NotADirectoryError):
                names = ()
            self._listed[directory] = names
        return self._listed[directory]

    def matching(self, pattern: str) -> list[str]:
        """Return the paths whose last part fits a pattern's."""
        directory, _, glob = pattern.rpartition("/")
        return [f"{directory}/{name}" for name in self.names(directory) if fnmatchcase(name, glob)]


def artefacts(
    machine: Machine, root: str, recorded: dict[str, tuple[int, int]], tree: Optional[Tree] = None
) -> dict[str, tuple[int, int]]:
    """Return size and time of the libraries that are there, by path in the checkout."""
    paths, tree = dict.fromkeys(recorded), tree or Tree(machine, root)
    for pattern in k3.RECORDED:
        paths.update(dict.fromkeys(tree.matching(pattern)))
    there = {}
    for path in paths:
        full = os.path.join(root, path)
        # Opening asks a network filesystem anew; a status alone may be some seconds old.
        if machine.is_file(full) and machine.read(full, len(_ELF)) == _ELF:
            status = machine.stat(full)
            if status is not None:
                there[path] = (status.st_size, status.st_mtime_ns)
    return there


def wanting(
    machine: Machine, root: str, python: str, objects: str = "", tree: Optional[Tree] = None
) -> tuple[str, ...]:
    """Return the patterns of what a whole build leaves, for a Python, and that nothing here matches.

    `objects` is where it compiled to; "": in the checkout.
    """
    tree = tree or Tree(machine, root)
    script = os.path.join(root, k3.SCRIPT)
    words = machine.text(script) if machine.is_file(script) else ""
    return tuple(
        item.pattern
        for item in k3.ARTEFACTS
        if item.word in words
        and (not item.condition or _has_content(machine, _moved(root, item.condition, objects)))
        and not _is_there(tree, item.pattern, python)
        and not (item.alternative and _is_there(tree, item.alternative, python))
    )


def cmake_cache(machine: Machine, root: str, objects: str = "") -> dict[str, str]:
    """Return what CMakeCache.txt says of architecture, directories, Python and NVRTC."""
    path = _cache(root, objects)
    return dict(_CACHED.findall(machine.text(path, 1 << 24))) if machine.is_file(path) else {}


def _cache(root: str, objects: str) -> str:
    return _moved(root, k3.CMAKE_CACHE, objects)


def _moved(root: str, path: str, objects: str) -> str:
    """Return where a file of the compilation is."""
    if objects and path.startswith(f"{k3.CMAKE_DIR}/"):
        return os.path.join(objects, path[len(k3.CMAKE_DIR) + 1 :])
    return os.path.join(root, path)


def _is_there(tree: Tree, pattern: str, python: str) -> bool:
    if pattern.endswith("/"):
        return bool(tree.names(pattern.rstrip("/")))
    return any(_fits(path, python) for path in tree.matching(pattern))


def _fits(path: str, python: str) -> bool:
    """Return whether an extension is for a Python: "bindings.cpython-312-aarch64-linux-gnu.so"."""
    tagged = re.search(r"\.cpython-(\d+)", path)
    return not python or tagged is None or tagged[1] == python.replace(".", "")


def _has_content(machine: Machine, path: str) -> bool:
    return machine.is_file(path) and bool(machine.text(path).strip().strip(";"))


def _listed(paths: tuple[str, ...], before: str) -> tuple[Change, ...]:
    if len(paths) <= _FEW:
        return tuple(Change(path, before, "as built") for path in paths)
    return (Change("build's artefacts", f"{len(paths)} {before}: {', '.join(paths[:_FEW])}, …", "as built"),)
