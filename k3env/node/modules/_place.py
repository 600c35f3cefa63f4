"""A place: one path that a module makes, held by its directory, so that no link can lead it elsewhere."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from k3env.errors import Refused
from k3env.node.modules import inside

if TYPE_CHECKING:
    from k3env.node.machine import Machine

DIRECTORY, FILE, LINK, OTHER = "directory", "file", "link", "other"
_LINKS = 40
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = ((stat.S_ISDIR, DIRECTORY), (stat.S_ISREG, FILE), (stat.S_ISLNK, LINK))


@dataclass(frozen=True)
class Standing:
    """What stands at a place."""

    kind: str
    uid: int
    gid: int
    mode: int
    size: int

    @property
    def shown(self) -> str:
        """Its mode as chmod takes it."""
        return f"{self.mode:04o}"


@dataclass(frozen=True)
class Place:
    """A path, its directory free of links. What stands there is looked at, and never followed."""

    path: str
    """As the task names it."""
    directory: str
    """The directory it is in, links resolved."""
    name: str
    mirrored: Optional[str] = None
    """On a simulated node: the directory of this machine that `directory` stands for."""

    @property
    def has_directory(self) -> bool:
        """Whether there is a directory to stand in."""
        return os.path.isdir(self.directory) or (self.mirrored is not None and os.path.isdir(self.mirrored))

    @property
    def real(self) -> str:
        """The path, links before the last component resolved."""
        return os.path.join(self.directory, self.name)

    def standing(self) -> Optional[Standing]:
        """Return what stands there; None for nothing, or no directory to stand in."""
        try:
            found = os.lstat(self.real)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Standing(_kind(found.st_mode), found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_size)

    def read(self, limit: int) -> bytes:
        """Return the first bytes of the file that stands there.

        Raises OSError: it is a link by now, or may not be read.
        """
        descriptor = os.open(self.real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit)

    @contextlib.contextmanager
    def held(self) -> Iterator[int]:
        """Hold its directory open, entered step by step through no link.

        Raises OSError, Refused if somebody else could have made a directory on the way.
        """
        if self.mirrored is not None and self.has_directory:
            os.makedirs(self.directory, exist_ok=True)
        from k3env.node import way

        at = os.open("/", _STEP)
        try:
            with way.naming(self.directory, within=False):
                for name in self.directory.strip("/").split("/"):
                    below = os.open(name, _STEP, dir_fd=at) if name else os.dup(at)
                    os.close(at)
                    at = below
            self.trust()
            # What is done there is done to this path.
            with way.naming(self.path, within=False):
                yield at
        finally:
            os.close(at)

    def trust(self) -> None:
        """Refuse a way on which another user can put something of theirs.

        Raises Refused.
        """
        danger = _danger(self.path if self.mirrored is None else self.real)
        if danger is not None:
            raise Refused(
                f"{self.path} can't be trusted: {danger}",
                expected=f"directories that uid {os.geteuid()} or root alone may replace",
                found=danger,
                remedy="choose another path, or remove what another user has put there",
            )


def place(path: str, machine: Machine) -> Place:
    """Return the place that a path means on this node; `~/` is the user's home there."""
    told = os.path.expanduser(path).rstrip("/")
    directory, name = os.path.split(told)
    if machine.overlay is None:
        return Place(told, os.path.realpath(directory), name)
    # A simulated node's own files are real; anything else lies in its overlay, never on this machine.
    rack = os.path.dirname(os.path.dirname(os.path.abspath(machine.overlay)))
    if inside(told, rack):
        return Place(told, os.path.realpath(directory), name)
    return Place(told, os.path.realpath(machine.overlay + directory), name, mirrored=directory)


def _danger(path: str) -> Optional[str]:
    """Return why a user can't trust the way to a path, or None; links before its last component are gone along."""
    from k3env.node.facts.cache import Component, unsafe

    top = os.lstat("/")
    root = at = Component("/", DIRECTORY, top.st_uid, stat.S_IMODE(top.st_mode))
    names = path.strip("/").split("/")
    links = 0
    while names:
        name = names.pop(0)
        there = os.path.normpath(os.path.join(at.path, name))
        try:
            found = os.lstat(there)
        except (FileNotFoundError, NotADirectoryError):
            return None
        item = Component(there, _kind(found.st_mode), found.st_uid, stat.S_IMODE(found.st_mode))
        danger = None if name in ("", ".", "..") else unsafe((at, item), os.geteuid())
        if danger is not None:
            return danger
        if item.kind == LINK and names:
            links += 1
            if links > _LINKS:
                return f"{there} leads through more than {_LINKS} links"
            target = os.readlink(there)
            names = [*target.strip("/").split("/"), *names]
            at = root if os.path.isabs(target) else at
        else:
            at = item
    return None


def _kind(mode: int) -> str:
    return next((kind for test, kind in _KINDS if test(mode)), OTHER)
