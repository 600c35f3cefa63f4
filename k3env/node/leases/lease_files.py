"""What stands beside a path for its lease: read past caches, put there and taken away by one rename each.

`.NAME.k3env-lease/` holds `owner.json`, which never changes, and `beat`, which its owner overwrites in place: a network
filesystem's client looks at a file anew whenever it opens it, but may know a *name* by heart for a minute. Who has just
written into a directory is told its names anew; so `refresh` goes before every look that something hangs on.

A lease is taken away under a name that comes from its own nonce, `.NAME.k3env-dead-NONCE`. rename(2) never replaces a
directory that has content, so the server lets one taker of several succeed, however old what the others see is.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Optional

from k3env.errors import Refused
from k3env.protocol import codec

OWNER, BEAT = "owner.json", "beat"
BEAT_BYTES = 4096
"""A whole page, so that a reader sees one beat or the next, not parts of both."""
GRAVE_S = 600.0
"""How long what is dead keeps its name from being taken away twice: longer than any client's cache, seconds."""
_LIMIT = 1 << 16
_NONCE = re.compile(r"[0-9a-f]{8,64}")
_IN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What stands there may be anybody's: a link, a pipe that nobody writes to, a file without end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OVER = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Owner:
    """Who holds a lease."""

    host: str
    """The controller's name for the node."""
    nodename: str
    """The node's own name: two machines may be called alike by two controllers."""
    boot_id: str
    pid: int
    pid_namespace: str
    run: str
    task: str
    person: str = ""
    nonce: str = ""
    since: float = 0.0
    """Seconds since the epoch on the owner's clock; for people only."""

    def __str__(self) -> str:
        if not self.pid:
            return f"{self.host}, unreadable {OWNER}"
        return f"{self.host} (pid {self.pid}, run {self.run}{', ' + self.person if self.person else ''})"


UNKNOWN = Owner("unknown", "", "", 0, "", "", "")
"""Whoever holds a lease whose owner.json can't be read."""


@dataclass(frozen=True)
class Standing:
    """A lease that stands beside a path."""

    owner: Owner
    count: Any = None
    """The counter; None where it can't be read."""
    progress: str = ""
    inode: int = 0

    @property
    def identity(self) -> str:
        """What tells it from the one before and the one after; part of a file name."""
        return self.owner.nonce if _NONCE.fullmatch(self.owner.nonce) else f"inode-{self.inode}"


class Beside:
    """The lease of one path on the filesystem."""

    def __init__(self, path: str) -> None:
        self.parent, self.name = os.path.split(os.path.abspath(path))
        self._base = os.path.join(self.parent, f".{self.name}")
        self.directory = f"{self._base}.k3env-lease"
        self.failure = f"{self._base}.k3env-failed.json"

    def refresh(self) -> None:
        """Write beside the path, which makes this client look at the names there anew.

        Raises OSError where that can't be done now.
        """
        # A name that nobody knows before, opened as new: where anybody may write, a known one may be a link by now.
        probe = f"{self._base}.k3env-wait-{nonce()}"
        os.close(os.open(probe, _NEW, 0o644))
        os.unlink(probe)

    def standing(self) -> Optional[Standing]:
        """Return the lease that stands there, of UNKNOWN where its owner can't be read; or None.

        Raises Refused for a link, for what is no directory, and, where anybody may write, for a stranger's.
        """
        foreign = _foreign(self.directory)
        if foreign is not None:
            raise self._no_lease(foreign)
        found: Optional[Standing] = None
        # It may have come, or gone, between two looks at parts of it.
        for _ in range(2):
            try:
                found = read(self.directory)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise self._no_lease("something that is no directory") from None
                found = Standing(UNKNOWN)
            if found.owner != UNKNOWN:
                break
        return found

    def put(self, owner: Owner) -> Optional[int]:
        """Let a lease of this owner stand there, if none does; return its directory, open, or None.

        Raises OSError where nothing can be written.
        """
        staged = f"{self._base}.k3env-new-{owner.nonce}"
        os.mkdir(staged, 0o755)
        try:
            descriptor = os.open(staged, _IN)
            try:
                _write(descriptor, OWNER, json.dumps(vars(owner)), _NEW)
                beat(descriptor, 0, "", _NEW)
            except BaseException:
                os.close(descriptor)
                raise
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        try:
            os.rename(staged, self.directory)
        except OSError:
            # Over a network a repeated request can report a failure that was a success; then the nonce decides.
            shutil.rmtree(staged, ignore_errors=True)
            if not self.is_of(owner):
                os.close(descriptor)
                return None
        return descriptor

    def is_of(self, owner: Owner) -> bool:
        """Return whether the lease that stands there is this owner's."""
        found = self.standing()
        return found is not None and found.owner.nonce == owner.nonce

    def take_away(self, seen: Standing) -> Optional[str]:
        """Take away the lease that was seen, and return where it is now.

        None: it stands there no more, or its counter has moved since, and nothing was done.

        Raises OSError if this user may not.
        """
        grave = f"{self._base}.k3env-dead-{seen.identity}"
        try:
            os.rename(self.directory, grave)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return None  # another taker was faster
            raise
        try:
            found = read(grave)
        except OSError:
            found = seen
        if found.identity == seen.identity and found.count == seen.count:
            return grave
        # Another one stood there than was seen, or its owner lives; it is given back, unless a newer one stands there.
        with suppress(OSError):
            os.rename(grave, self.directory)
        return None

    def sweep(self, descriptor: int) -> None:
        """Remove what dead owners and waiters left here long ago, by the clock that also stamped our own lease."""
        marks = tuple(f".{self.name}.k3env-{kind}-" for kind in ("dead", "new", "wait", "gone"))
        with suppress(OSError):
            now = os.fstat(descriptor).st_ctime
            for entry in os.listdir(self.parent):
                path = os.path.join(self.parent, entry)
                if not entry.startswith(marks) or now - os.lstat(path).st_ctime < GRAVE_S:
                    continue
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)

    def failed(self) -> Optional[Mapping[str, Any]]:
        """Return the failure that the last owner left, if this user or root wrote it."""
        return read_json(self.failure, None, (os.geteuid(), 0))

    def fail(self, record: Mapping[str, Any]) -> None:
        """Leave a failure. Raises OSError."""
        fresh = f"{self.failure}.{nonce()}"
        try:
            with os.fdopen(os.open(fresh, _NEW, 0o644), "w", encoding="utf-8") as file:
                json.dump(record, file)
            os.replace(fresh, self.failure)
        except OSError:
            with suppress(OSError):
                os.unlink(fresh)
            raise

    def _no_lease(self, what: str) -> Refused:
        return Refused(
            f"{os.path.join(self.parent, self.name)} can't be leased: {what} stands at {self.directory}",
            expected=f"a lease of uid {os.geteuid()}, or none", found=what,
            remedy=f"find out who put it there, and rm -r {self.directory}; or choose a path in your own directory",
            id="run.lease",
        )  # fmt: skip


def read(directory: str) -> Standing:
    """Return the lease that a directory is. Raises OSError if it is none that can be entered."""
    descriptor = os.open(directory, _IN)
    try:
        try:
            owner: Owner = codec.decode(Owner, read_json(OWNER, descriptor))
        except codec.DecodeError:
            owner = UNKNOWN
        beat = read_json(BEAT, descriptor) or {}
        return Standing(owner, beat.get("count"), str(beat.get("progress", "")), os.fstat(descriptor).st_ino)
    finally:
        os.close(descriptor)


def beat(directory: int, count: int, progress: str, flags: int = _OVER) -> None:
    """Write the counter into a lease's open directory, wherever that is by now. Raises OSError."""
    _write(directory, BEAT, json.dumps({"count": count, "progress": progress[:200]}).ljust(BEAT_BYTES), flags)


def read_json(
    name: str, directory: Optional[int] = None, owners: Optional[tuple[int, ...]] = None
) -> Optional[dict[str, Any]]:
    """Return a JSON object from a file, which is no link, small, and of one of these users; else None."""
    try:
        with os.fdopen(os.open(name, _READ, dir_fd=directory), "rb") as file:
            if owners is not None and os.fstat(file.fileno()).st_uid not in owners:
                return None
            value = json.loads(file.read(_LIMIT).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def nonce() -> str:
    """Return a name that no other attempt has."""
    return secrets.token_hex(6)


def _write(directory: int, name: str, text: str, flags: int) -> None:
    with os.fdopen(os.open(name, flags, 0o644, dir_fd=directory), "wb", buffering=0) as file:
        file.write(text.encode())


def _foreign(path: str) -> Optional[str]:
    """Return what stands at a path and is not to be believed: a link, or, where anybody may write, a stranger's."""
    try:
        found, above = os.lstat(path), os.stat(os.path.dirname(path))
    except OSError:
        return None  # nothing, or it is gone again
    if stat.S_ISLNK(found.st_mode):
        return f"a link of uid {found.st_uid}"
    anybody = bool(above.st_mode & stat.S_IWOTH)
    return f"something of uid {found.st_uid}" if anybody and found.st_uid not in (0, os.geteuid()) else None
