"""cache_dirs: the node-local base of the rank caches."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k3env.errors import Refused, TaskFailed
from k3env.node.modules import Module
from k3env.protocol.finding import Change

if TYPE_CHECKING:
    from k3env.node.facts.cache import Component
    from k3env.node.machine import Machine

GIB = 1 << 30
PARENT_MODE = 0o755
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class CacheDirs(Module):
    """Create the node-local base of the rank caches, and prove that it is local, ours, executable and roomy.

    It takes no lease: what it makes is the node's own, and making a directory is atomic. Room is demanded before the
    base is made; how much is left of it later is for the check `cache.space` to say, since the caches fill it.
    """

    base: str
    """Absolute path of a directory on a filesystem of the node itself; the ranks' containers mount it. A `~/` at its
    beginning is the user's home on the node."""
    min_free_gib: float = 20
    """GiB that must be free where the base is made."""

    def __post_init__(self) -> None:
        # normpath keeps two slashes at the beginning, which POSIX leaves to the system.
        base = self.base[1:] if self.base.startswith("~/") else self.base
        plain = os.path.normpath("/" + base.lstrip("/"))
        if base.rstrip("/") != plain or plain == "/":
            raise ValueError(f"base must be an absolute path without `.`, `..` or `//`, found {self.base!r}")
        if self.min_free_gib < 0:
            raise ValueError(f"min_free_gib must not be negative, found {self.min_free_gib:g}")

    @property
    def path(self) -> str:
        """The base on this node, without a slash at its end."""
        return os.path.expanduser(self.base).rstrip("/")

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return the directories that are missing, and a mode that is wrong.

        Raises Refused for a filesystem that is not the node's own, read-only, without execution or too full, and for a
        path that leads through a link or through somebody else's directory.
        """
        from k3env.node.facts.cache import MODE, components

        # By name alone, before the path is touched: a dead server would block this process for good.
        self._refuse_filesystem(machine)
        found = components(self.path, machine)
        self._refuse_path(found)
        self._refuse_filesystem(machine)  # once more: an automounter has mounted by now
        last = found[-1]
        if last.path == self.path:
            return () if last.mode == MODE else (Change("base mode", last.shown, f"{MODE:04o}"),)
        self._refuse_crowded(machine, last.path)
        missing = _missing(last.path, self.path)
        parents = tuple(Change(f"directory {path}", "absent", f"directory {PARENT_MODE:04o}") for path in missing[:-1])
        return (*parents, Change(f"base {self.path}", "absent", f"directory {MODE:04o}"))

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what is right about the base."""
        from k3env.node.facts.cache import MODE

        return (f"{self.path} is there, on a filesystem of the node itself, mode {MODE:04o}, its user's",)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Make them, step by step from the root, following no link; then try the base.

        Raises Refused if the way changed under our feet, TaskFailed if the base can't serve.
        """
        from k3env.node.facts.cache import probe

        try:
            self._make()
        except OSError as error:
            raise TaskFailed(
                f"{self.path} can't be made: {error.strerror}",
                expected=f"a directory that uid {os.geteuid()} may make",
                found=f"{error.strerror} at {error.filename}",
                remedy="have its parent made for this user, or set cache_base elsewhere",
            ) from None
        tried = probe(self.path)
        if tried.failed is not None:
            raise TaskFailed(
                f"{self.path} can't hold caches: {tried.failed}: {tried.reason}",
                expected="create, map as code, lock, rename and remove a file",
                found=f"{tried.failed}: {tried.reason}",
                remedy="set cache_base to a local filesystem such as ext4 or xfs, mounted without noexec",
                evidence=tried.source,
            )

    def _make(self) -> None:
        from k3env.node import way

        at, seen = os.open("/", _STEP), "/"
        try:
            for name in self.path.strip("/").split("/"):
                seen = os.path.join(seen, name)
                with way.naming(seen, within=False):
                    below = self._step(at, name, seen)
                os.close(at)
                at = below
        finally:
            os.close(at)

    def _step(self, above: int, name: str, path: str) -> int:
        """Enter a directory, made if it is missing, and give the base its mode."""
        from k3env.node.facts.cache import MODE

        try:
            below = os.open(name, _STEP, dir_fd=above)
            made = False
        except FileNotFoundError:
            os.mkdir(name, MODE, dir_fd=above)
            below = os.open(name, _STEP, dir_fd=above)
            made = True
        try:
            self._refuse_step(above, below, path)
            if made or path == self.path:
                # A descriptor of O_PATH has no fchmod; its name in /proc leads to the very same directory.
                os.chmod(f"/proc/self/fd/{below}", MODE if path == self.path else PARENT_MODE)
        except BaseException:
            os.close(below)
            raise
        return below

    def _refuse_step(self, above: int, below: int, path: str) -> None:
        """Look once more at what was entered: somebody may have made it just before us."""
        from k3env.node.facts.cache import unsafe

        pair = (_component(above, os.path.dirname(path)), _component(below, path))
        danger = unsafe(pair, os.geteuid())
        if danger is None and path == self.path and pair[1].uid != os.geteuid():
            danger = f"{path} belongs to uid {pair[1].uid}"
        if danger is not None:
            raise self._refused(danger, danger)

    def _refuse_filesystem(self, machine: Machine) -> None:
        from k3env.node.facts import mounts

        table = mounts.mounts(machine)
        mount = mounts.containing(table, self.path)
        data = mounts.data_mount(table, mount, machine)
        where = f"{data.fstype} at {data.point}"
        if data.kind == mounts.NETWORK:
            raise self._refused(f"{self.path} is on a shared filesystem", f"{where}, from {data.source}")
        for wrong, what in ((mount.read_only, "read-only"), (mount.noexec, "noexec: compiled kernels can't be loaded")):
            if wrong:
                raise self._refused(f"{self.path} is on a filesystem mounted {what}", where)

    def _refuse_path(self, found: tuple[Component, ...]) -> None:
        from k3env.node.facts.cache import unsafe

        danger = unsafe(found, os.geteuid())
        if danger is not None:
            raise self._refused(danger, danger)
        last = found[-1]
        if last.kind == "link":
            raise self._refused(f"{last.path} is a symbolic link to {os.readlink(last.path)}", "a symbolic link")
        if last.kind == "other":
            raise self._refused(f"{last.path} is no directory", "no directory")
        if last.path == self.path and last.uid != os.geteuid():
            raise self._refused(f"{self.path} belongs to uid {last.uid}", f"uid {last.uid}")

    def _refuse_crowded(self, machine: Machine, path: str) -> None:
        free = machine.space(path).free_bytes / GIB
        if free < self.min_free_gib:
            raise Refused(
                f"{self.path} would have too little room: {free:.1f} GiB are free, {self.min_free_gib:g} are wanted",
                expected=f">= {self.min_free_gib:g} GiB free",
                found=f"{free:.1f} GiB free at {path}",
                remedy="make room, set cache_base to a larger filesystem, or lower min_free_gib",
            )

    def _refused(self, message: str, found: str) -> Refused:
        return Refused(
            message,
            expected=f"a local directory of uid {os.geteuid()}, or a place where it can be made",
            found=found,
            remedy="set cache_base to a directory on a local disk of the node that is this user's alone",
        )


def _component(descriptor: int, path: str) -> Component:
    from k3env.node.facts.cache import Component

    status = os.fstat(descriptor)
    return Component(path, "directory", status.st_uid, stat.S_IMODE(status.st_mode))


def _missing(existing: str, path: str) -> tuple[str, ...]:
    """Return the paths below an existing directory that lead to another path, which is the last of them."""
    names = os.path.relpath(path, existing).split("/")
    return tuple(os.path.join(existing, *names[:depth]) for depth in range(1, len(names) + 1))
