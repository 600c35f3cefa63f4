"""Trust: what root must not run, enter or hand to git, since another user could have written it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

NOBODY = 65534
"""Whom a user namespace shows for everybody that it does not know, the machine's root among them."""
PEOPLE = 1000
"""The first group that is a person's own. Source: GID_MIN of login.defs(5) on Debian and Red Hat."""
_LINKS = 40
# Of whoever called sudo: git trusts the repositories of SUDO_UID.
_CALLERS = ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME")


def exposed(path: str) -> Optional[str]:
    """Return why another user than root could put something else at a path, or None; links are gone along."""
    at, names, links = "", path.split("/"), 0
    while names:
        name = names.pop(0)
        if name in ("", ".", ".."):
            at = os.path.dirname(at) if name == ".." else at
            continue
        there = f"{at}/{name}"
        try:
            found = os.lstat(there)
        except OSError:
            return _made_by_others(at or "/")
        if found.st_uid not in (0, NOBODY):
            return f"{there} belongs to uid {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            target = os.readlink(there)
            names, at = target.split("/") + names, "" if target.startswith("/") else at
            if links > _LINKS:
                return f"{path} leads through more than {_LINKS} links"
            continue
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if _is_open(found) and not (sticky and any(names)):
            return f"{there} may be written to by others: its mode is {stat.S_IMODE(found.st_mode):04o}"
        at = there
    if at and _is_open(os.lstat(at)):  # where `.` or `..` led back to what was only passed through
        return f"{at} may be written to by others: its mode is {stat.S_IMODE(os.lstat(at).st_mode):04o}"
    return None


def _made_by_others(directory: str) -> Optional[str]:
    """Return why others could make what is not there yet in a directory of root's, or None."""
    return f"anybody may make files in {directory}" if _is_open(os.lstat(directory)) else None


def refuse(argv: Sequence[str], path: Optional[str], cwd: Optional[str]) -> None:
    """Raise PermissionError if a command would have root run, or read as its own, what another user can write."""
    import shutil

    for place in _places(argv, shutil.which(argv[0], path=path), cwd):
        why = exposed(place)
        if why is not None:
            told = f"root runs nothing that another user can write: {why}; set k3_user to the owner"
            raise PermissionError(errno.EPERM, told, place)


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return what root's commands may inherit: no setting that leads to what another user can write."""
    import pwd

    kept = {
        name: value
        for name, value in inherited.items()
        if name not in _CALLERS and (name in ("PATH", "HOME") or not any(map(exposed, _paths(value))))
    }
    if exposed(kept.get("HOME", "/")):
        kept["HOME"] = pwd.getpwuid(0).pw_dir
    return kept


def search_path(path: str) -> str:
    """Return a PATH without the directories that another user can write to, and without relative ones."""
    parts = path.split(os.pathsep)
    return os.pathsep.join(part for part in parts if os.path.isabs(part) and exposed(part) is None)


def _places(argv: Sequence[str], program: Optional[str], cwd: Optional[str]) -> Iterator[str]:
    """Yield what a command runs, where it looks for what it imports, and the repository whose settings git obeys."""
    if program is not None:
        yield os.path.join(cwd or "/", program)
    if cwd is not None:
        yield cwd
    if os.path.basename(argv[0]) == "git" and "-C" in argv[:-1]:
        root = argv[list(argv).index("-C") + 1]
        yield root
        yield os.path.join(root, ".git", "config")


def _paths(value: str) -> Iterator[str]:
    for part in value.replace("=", ":").replace(" ", ":").split(":"):
        if part.startswith("/"):
            yield part


def _is_open(found: os.stat_result) -> bool:
    """Return whether somebody else may write there; a system's group, such as staff, is root's to manage."""
    people = found.st_mode & stat.S_IWGRP and PEOPLE <= found.st_gid != NOBODY
    return bool(found.st_mode & stat.S_IWOTH or people)
