"""The node-local base of the rank caches: where it lies, whose it is, what can be done in it, how much room it has."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import Optional, Union

from k3env.node.facts.mounts import MOUNTINFO, Locality, locality
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable
from k3env.protocol.profile import Profile

MODE = 0o700
"""What the base's mode must be: JIT results are code that ranks load."""

# How this process may be refused by a filesystem that has no such operation (Lustre without `flock`, some FUSE).
_REFUSALS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Component:
    """One directory on the way to the base, or what stands in its place."""

    path: str
    kind: str
    """directory, link, or other."""
    uid: int
    mode: int

    @property
    def shown(self) -> str:
        """Its mode as chmod takes it."""
        return f"{self.mode:04o}"


@dataclass(frozen=True)
class Base:
    """The cache base and every directory above it that exists, from the root on."""

    path: Optional[str]
    """None where the play names no cache base."""
    components: tuple[Component, ...] = ()
    wanted_uid: int = -1
    """Whose it must be: k3_user's, else this process's."""
    source: tuple[Evidence, ...] = ()

    @property
    def itself(self) -> Optional[Component]:
        """What stands at the base's own path, or None."""
        last = self.components[-1] if self.components else None
        return last if last is not None and last.path == self.path else None


@dataclass(frozen=True)
class Filesystem:
    """The filesystem of the base, or of the place where it would be made."""

    path: Optional[str]
    exists: bool = False
    locality: Optional[Locality] = None
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Probe:
    """What was tried in the base. The file that it took is gone again."""

    path: Optional[str]
    exists: bool = False
    failed: Optional[str] = None
    """The first step that failed: create, map, lock, rename or remove; None if all went well."""
    reason: str = ""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Room:
    """What is free on the filesystem of the base."""

    path: Optional[str]
    exists: bool = False
    free_bytes: int = 0
    free_inodes: int = 0
    source: tuple[Evidence, ...] = ()


def cache_base(machine: Machine, profile: Profile) -> Base:
    """Read owner and mode of the base and of the directories above it, links not followed."""
    path = _path(machine, profile)
    if path is None:
        return Base(None)
    found = components(path, machine)
    told = "\n".join(f"{item.path}: {item.kind}, uid {item.uid}, mode {item.shown}" for item in found[-3:])
    return Base(path, found, _wanted_uid(profile.user), (Evidence(f"lstat {path}", excerpt=told),))


def cache_filesystem(machine: Machine, profile: Profile) -> Filesystem:
    """Read on which filesystem the base is, or would be made."""
    path = _path(machine, profile)
    if path is None:
        return Filesystem(None)
    found = locality(machine, path)
    mount = found.data
    told = f"{mount.point} {mount.fstype} {mount.source} {','.join(mount.options)}"
    return Filesystem(path, machine.is_dir(path), found, (Evidence(MOUNTINFO, excerpt=told),))


def cache_probe(machine: Machine, profile: Profile) -> Union[Probe, Unreadable]:
    """Try in the base what a JIT compiler does there; only its owner may."""
    path = _path(machine, profile)
    if path is None:
        return Probe(None)
    status = machine.stat(path, follow=False)
    if status is None:
        return Probe(path)
    if status.st_uid != machine.uid():
        who = f"only its owner may try it, and this is uid {machine.uid()}"
        return Unreadable(f"{path} belongs to uid {status.st_uid}: {who}")
    if machine.recorded:
        return Unreadable(f"{path} can't be tried in a recording")
    return probe(path)


def cache_room(machine: Machine, profile: Profile) -> Room:
    """Read what is free for an unprivileged user where the base is."""
    path = _path(machine, profile)
    if path is None:
        return Room(None)
    if not machine.is_dir(path):
        return Room(path)
    space = machine.space(path)
    told = f"{space.free_bytes} bytes and {space.free_inodes} inodes are free"
    return Room(path, True, space.free_bytes, space.free_inodes, (Evidence(f"statvfs {path}", excerpt=told),))


def components(path: str, machine: Machine) -> tuple[Component, ...]:
    """Return what stands on the way to an absolute path, as far as it goes; nothing behind a link."""
    found: list[Component] = []
    at = "/"
    for name in ("", *path.strip("/").split("/")):
        at = os.path.join(at, name)
        status = machine.stat(at, follow=False)
        if status is None:
            break
        found.append(Component(at, _kind(status.st_mode), status.st_uid, stat.S_IMODE(status.st_mode)))
        if not stat.S_ISDIR(status.st_mode):
            break
    return tuple(found)


def unsafe(found: tuple[Component, ...], uid: int) -> Optional[str]:
    """Return why a user can't trust the directories on the way to its own, or None.

    Somebody else must not be able to put another directory in the place of one of them: whoever may write to a
    directory without the sticky bit can, and with it (as in /tmp) whoever made the next one. What a group may write to
    is left to those who manage the group.
    """
    for above, item in zip(found, found[1:]):
        if not above.mode & stat.S_IWOTH:
            continue
        if not above.mode & stat.S_ISVTX:
            return f"anybody may replace {item.path}: {above.path} has mode {above.shown}, without the sticky bit"
        if item.uid not in (0, uid):
            return f"{item.path} belongs to uid {item.uid}, and anybody may write to {above.path}"
    return None


def probe(path: str) -> Probe:
    """Create, map as code, lock, rename and remove a file in a directory that is ours."""
    import fcntl
    import mmap

    name = f".k3env-probe-{os.getpid()}-{os.urandom(4).hex()}"
    moved = f"{name}.moved"
    step = "create"
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o700, dir_fd=directory)
        try:
            os.write(file, b"\0" * mmap.PAGESIZE)
            step = "map"
            mmap.mmap(file, mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
            step = "lock"
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(file)
        step = "rename"
        os.rename(name, moved, src_dir_fd=directory, dst_dir_fd=directory)
        step = "remove"
        os.unlink(moved, dir_fd=directory)
    except OSError as error:
        return Probe(path, True, step, _reason(error), (Evidence(f"{step} {path}/{name}", error.errno, str(error)),))
    finally:
        _remove((name, moved), directory)
        os.close(directory)
    return Probe(path, True, source=(Evidence(f"create, map, lock, rename, remove {path}/{name}"),))


def _path(machine: Machine, profile: Profile) -> Optional[str]:
    base = profile.paths.cache_base
    if base is not None and base.startswith("~/"):
        base = machine.environment.get("HOME", os.path.expanduser("~")) + base[1:]
    return None if base is None else os.path.normpath(base)


def _remove(names: tuple[str, ...], directory: int) -> None:
    for name in names:
        try:
            os.unlink(name, dir_fd=directory)
        except OSError:
            continue


def _reason(error: OSError) -> str:
    said = error.strerror or str(error)
    return f"{said}: this filesystem can't do it" if error.errno in _REFUSALS else said


def _kind(mode: int) -> str:
    return "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def _wanted_uid(user: Optional[str]) -> int:
    """Return the uid of k3_user, or of this process.

    Raises ValueError for a user that this node does not know.
    """
    if user is None:
        return os.geteuid()
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(f"user {user} is unknown on this node") from None
