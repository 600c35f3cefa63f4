"""file: a directory, a link, a file's mode and owner, or nothing at all."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional

from k3env.errors import Refused, TaskFailed
from k3env.node.modules import Module, _ownership
from k3env.node.modules._parameters import check_path
from k3env.node.modules._place import DIRECTORY, FILE, LINK, Place, Standing, place
from k3env.protocol.finding import Change

if TYPE_CHECKING:
    from k3env.node.machine import Machine

DIRECTORY_MODE = 0o755


@dataclass(frozen=True)
class File(Module):
    """Make a directory or a link, give a path its mode and owner, or see that nothing is there.

    It makes no files, `copy` does; it removes no directory that holds anything, and follows no link in the last place.
    """

    path: str
    """Absolute path on the node, or `~/…`."""
    state: Literal["directory", "file", "link", "absent"] = "file"
    """directory: made with those above it; file: a file that is there already; link: a symbolic link to src."""
    src: Optional[str] = None
    """What a link leads to, as it is written into it; it need not exist."""
    mode: Optional[str] = None
    """Octal digits in quotes, such as "0755", which is what a new directory gets."""
    owner: Optional[str] = None
    """A user's name or number."""
    group: Optional[str] = None
    """A group's name or number."""

    def __post_init__(self) -> None:
        check_path("path", "/home" + self.path[1:] if self.path.startswith("~/") else self.path)
        _ownership.check(self.mode, self.owner, self.group)
        if (self.state == LINK) != (self.src is not None):
            raise ValueError("src is what a link leads to: state: link needs it, and no other state has it")
        if self.src is not None and (not self.src or "\0" in self.src):
            raise ValueError(f"src can't be a link's target, found {self.src!r}")
        if self.state in (LINK, "absent") and self.mode is not None:
            raise ValueError(f"mode has no meaning for state: {self.state}")
        if self.state == "absent" and (self.owner is not None or self.group is not None):
            raise ValueError("owner has no meaning for state: absent")

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return what is missing, what is too much, and what has another mode or owner.

        Raises Refused where something of another kind stands in the way.
        """
        here = place(self.path, machine)
        here.trust()
        standing = here.standing()
        if self.state == "absent":
            return _absent(here, standing)
        wanted = _ownership.wanted(self.mode, self.owner, self.group)
        if standing is None:
            return self._missing(here, wanted)
        if standing.kind != self.state:
            raise _in_the_way(here, standing, self.state)
        if self.state == LINK and os.readlink(here.real) != self.src:
            return (Change(f"target of {here.path}", os.readlink(here.real), str(self.src)),)
        return wanted.changes(here.path, standing, self.owner, self.group)

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what is as it must be."""
        return (f"{self.path} is {self.state}, with the mode and owner that were asked for",)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Make it so, by the directory it is in.

        Raises TaskFailed, Refused for a file or a directory that is missing.
        """
        here = place(self.path, machine)
        wanted = _ownership.wanted(self.mode, self.owner, self.group)
        self._refuse_missing(here)
        try:
            if self.state == DIRECTORY:
                _make_above(here)
            with here.held() as directory:
                if self.state == "absent":
                    _remove(here, directory)
                elif self.state == LINK:
                    self._link(here, directory)
                else:
                    self._settle(here, directory, wanted)
        except OSError as error:
            raise TaskFailed(
                f"{here.path} can't be made {self.state}: {error.strerror}",
                expected=f"what uid {os.geteuid()} may do in {here.directory}",
                found=error.strerror or str(error),
                remedy="do it as another user with become, or choose another path",
            ) from None

    def _missing(self, here: Place, wanted: _ownership.Wanted) -> tuple[Change, ...]:
        if self.state == DIRECTORY:
            above = tuple(Change(path, "absent", f"directory {DIRECTORY_MODE:04o}") for path in _above(here))
            mode = DIRECTORY_MODE if wanted.mode is None else wanted.mode
            return (*above, Change(here.path, "absent", f"directory {mode:04o}"))
        # What an earlier task would make may be missing now; `apply` says so.
        return (Change(here.path, "absent", "file" if self.state == FILE else f"link to {self.src}"),)

    def _refuse_missing(self, here: Place) -> None:
        if self.state == FILE and here.standing() is None:
            missing, remedy = "no file", "copy makes files"
        elif self.state == LINK and not here.has_directory:
            missing, remedy = "no directory to be in", "make its directory before, with state: directory"
        else:
            return
        raise Refused(f"{here.path}: there is {missing}", expected=self.state, found="nothing there", remedy=remedy)

    def _settle(self, here: Place, directory: int, wanted: _ownership.Wanted) -> None:
        made = False
        if self.state == DIRECTORY:
            with contextlib.suppress(FileExistsError):
                os.mkdir(here.name, 0o700, dir_fd=directory)
                made = True
        # O_PATH: neither a device is opened nor a pipe waited for; /proc leads to the very thing that is held.
        held = os.open(here.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            there = os.fstat(held).st_mode
            if not (stat.S_ISDIR(there) if self.state == DIRECTORY else stat.S_ISREG(there)):
                raise Refused(f"{here.path} was replaced meanwhile", expected=self.state, found="something else")
            wanted.give(f"/proc/self/fd/{held}", DIRECTORY_MODE if made else None)
        finally:
            os.close(held)

    def _link(self, here: Place, directory: int) -> None:
        temporary = f".{here.name[:200]}.k3env-{os.urandom(6).hex()}"
        wanted = _ownership.wanted(None, self.owner, self.group)
        os.symlink(str(self.src), temporary, dir_fd=directory)
        try:
            uid, gid = (-1 if number is None else number for number in (wanted.uid, wanted.gid))
            os.chown(temporary, uid, gid, dir_fd=directory, follow_symlinks=False)
            os.rename(temporary, here.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def _absent(here: Place, standing: Optional[Standing]) -> tuple[Change, ...]:
    if standing is None:
        return ()
    if standing.kind == DIRECTORY and os.listdir(here.real):
        raise Refused(
            f"{here.path} is a directory that holds something",
            expected="an empty directory, a file, a link or nothing",
            found=f"{len(os.listdir(here.real))} entries",
            remedy=f"if all of it shall go: command with argv: [rm, -r, {here.path}] and removes: {here.path}",
        )
    return (Change(here.path, standing.kind, "absent"),)


def _in_the_way(here: Place, standing: Standing, wanted: str) -> Refused:
    what = {LINK: "a symbolic link", DIRECTORY: "a directory", FILE: "a file"}.get(standing.kind, "no regular file")
    return Refused(
        f"{here.path} is {what}, not a {wanted}",
        expected=f"a {wanted}, or nothing",
        found=what,
        remedy="remove it with state: absent, or choose another path",
    )


def _above(here: Place) -> list[str]:
    """Return the directories above it that are missing, the outermost first."""
    missing: list[str] = []
    if here.mirrored is not None and here.has_directory:
        return missing
    at = here.directory
    while not os.path.lexists(at):
        missing.insert(0, at)
        at = os.path.dirname(at)
    return missing


def _make_above(here: Place) -> None:
    for path in _above(here):
        above = Place(path, os.path.dirname(path), os.path.basename(path))
        with above.held() as directory, contextlib.suppress(FileExistsError):
            os.mkdir(above.name, DIRECTORY_MODE, dir_fd=directory)
            os.chmod(above.name, DIRECTORY_MODE, dir_fd=directory)


def _remove(here: Place, directory: int) -> None:
    standing = here.standing()
    if standing is None:
        return
    if standing.kind == DIRECTORY:
        os.rmdir(here.name, dir_fd=directory)
    else:
        os.unlink(here.name, dir_fd=directory)
