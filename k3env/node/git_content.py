"""What lies in a checkout: submodules, Git LFS files, local changes, and what git is to overlook."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING, Callable, Optional

from k3env.node import git

if TYPE_CHECKING:
    from k3env.node.machine import Machine

_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_POINTER_BYTES = 1024
"""A pointer is shorter. Source: git-lfs, docs/spec.md."""
_MANY, _AT_ONCE = 64, 16
"""From how many files on they are asked about side by side, and how many at once."""


def absent_submodules(machine: Machine, root: str) -> tuple[str, ...]:
    """Return the submodules that are not there, by their path in the checkout, those within submodules too."""
    absent: list[str] = []
    for path in submodule_paths(machine, root):
        if not machine.exists(os.path.join(root, path, ".git")):
            absent.append(path)
            continue
        absent += [f"{path}/{inner}" for inner in absent_submodules(machine, os.path.join(root, path))]
    return tuple(absent)


def submodule_paths(machine: Machine, root: str) -> list[str]:
    """Return the paths of a checkout's own submodules."""
    path = os.path.join(root, ".gitmodules")
    if not machine.is_file(path):
        return []
    lines = (line.strip().partition("=") for line in machine.text(path).splitlines())
    paths = [value.strip().strip('"') for key, sign, value in lines if sign and key.strip() == "path"]
    return [path for path in paths if not os.path.isabs(path) and ".." not in path.split("/")]


def left_out(machine: Machine, root: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return those paths that HEAD's commit has and that are not there: a sparse checkout, or removed by hand."""
    absent = [path for path in paths if not machine.exists(os.path.join(root, path))]
    if not absent:
        return ()
    listed = git.answer(machine, root, "ls-files", "-z", "--", *absent).decode("utf-8", "surrogateescape")
    return tuple(filter(None, listed.split("\0")))


def lfs_pointers(machine: Machine, root: str) -> tuple[str, ...]:
    """Return the files of Git LFS whose pointer lies in their place."""

    def is_pointer(path: str) -> bool:
        full = os.path.join(root, path)
        found = machine.stat(full, follow=False)
        is_small = found is not None and stat.S_ISREG(found.st_mode) and found.st_size < _LFS_POINTER_BYTES
        return is_small and machine.read(full, len(_LFS_POINTER)) == _LFS_POINTER

    return _side_by_side(is_pointer, lfs_files(machine, root))


def lfs_files(machine: Machine, root: str) -> tuple[str, ...]:
    """Return the files of Git LFS, as git's index and .gitattributes tell them."""
    tracked = git.answer(machine, root, "ls-files", "-z", ":(attr:filter=lfs)").decode("utf-8", "surrogateescape")
    return tuple(filter(None, tracked.split("\0")))


def _side_by_side(holds: Callable[[str], bool], paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths for which something holds; a network filesystem answers several questions in the time of one."""
    if len(paths) < _MANY:
        return tuple(filter(holds, paths))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        shares = pool.map(lambda at: list(filter(holds, paths[at::_AT_ONCE])), range(_AT_ONCE))
        return tuple(sorted(path for share in shares for path in share))


def dirty_hash(machine: Machine, root: str) -> Optional[str]:
    """Return a hash of the local changes to tracked files, or None where there are none."""
    dirty = git.status(machine, root).dirty
    if not dirty:
        return None
    digest = hashlib.sha256()
    for path in sorted(dirty):
        full = os.path.join(root, path)
        content = machine.read(full, 1 << 28) if machine.is_file(full) else b"-"
        digest.update(path.encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def submodule_commits(machine: Machine, root: str) -> dict[str, str]:
    """Return the commits that the submodules are at, by path."""
    if not machine.is_file(os.path.join(root, ".gitmodules")):
        return {}
    lines = git.answer(machine, root, "submodule", "status", "--recursive").decode("utf-8", "replace").splitlines()
    found = (re.match(r"[ +U-]([0-9a-f]{40}) (\S+)", line) for line in lines)
    return {match[2]: match[1] for match in found if match}


def exclude_problem(machine: Machine, root: str, pattern: str) -> Optional[str]:
    """Return the file that should exclude a pattern from git's view and does not, or None."""
    found = git.directories(machine, root)
    if found is None:
        return None
    path = os.path.join(found[1], "info", "exclude")
    lines = machine.text(path).splitlines() if machine.is_file(path) else []
    return None if pattern in lines else path


def exclude(machine: Machine, root: str, pattern: str) -> None:
    """Let git overlook a pattern in this checkout, without a change to a tracked file."""
    path = exclude_problem(machine, root, pattern)
    if path is None:
        return
    text = machine.text(path) if machine.is_file(path) else ""
    machine.make(os.path.dirname(path))
    machine.write(path, f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{pattern}\n".encode())
