"""The lease beside a path: one owner changes it at a time, on whatever nodes they are.

`.NAME.k3env-lease/` stands beside the path, put there by one rename. `owner.json` in it says who; `beat` holds a
counter that the owner raises. Clocks of two nodes are never compared: an owner is dead when its counter stands
still for `timeout_s` on the waiter's own monotonic clock while the waiter's own writes there succeed. Takeover
renames the directory to a unique name and then looks at what was renamed.
A failure is left as `.NAME.k3env-failed.json`, which waiters of the same run adopt.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import stat
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional

from k3env.errors import Refused
from k3env.node.cancel import Cancel
from k3env.protocol import codec

TIMEOUT_S = 30.0
HELD, FAILED, DONE = "held", "failed", "done"
_RECORD_BYTES = 1 << 20
LOST = "the lease was lost"
"""Why an owner that can't renew stops its work."""


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
            return f"{self.host}, unreadable owner.json"
        return f"{self.host} (pid {self.pid}, run {self.run}{', ' + self.person if self.person else ''})"


UNKNOWN = Owner("unknown", "", "", 0, "", "", "")
"""Whoever holds a lease whose owner.json can't be read."""


class Lease:
    """The lease of one path, taken by `acquire` and given back by `release`."""

    def __init__(self, path: str, owner: Owner, cancel: Cancel, timeout_s: float = TIMEOUT_S) -> None:
        """`owner.nonce` must be unique to this attempt."""
        parent, name = os.path.split(os.path.abspath(path))
        self.path = path
        self._base = os.path.join(parent, f".{name}")
        self._directory = f"{self._base}.k3env-lease"
        self._failure = f"{self._base}.k3env-failed.json"
        self._owner = owner
        self._cancel = cancel
        self._timeout_s = timeout_s
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._progress = ""

    def holder(self) -> Optional[Owner]:
        """Return who holds the lease now, UNKNOWN where that can't be read, or None."""
        found = _read_owner(self._directory)
        if found is not None or not os.path.lexists(self._directory):
            return found
        # It may have come just now, between the two looks.
        return _read_owner(self._directory) or UNKNOWN

    def failed(self) -> Optional[dict[str, Any]]:
        """Return {host, result} with which this very task of this run failed on another host, or None."""
        record = None if _foreign(self._failure) else _read_json(self._failure)
        if record and (record.get("run"), record.get("task")) == (self._owner.run, self._owner.task):
            return record
        return None

    def acquire(self, on_wait: Callable[[Owner, str], None], is_done: Callable[[], bool] = lambda: False) -> str:
        """Wait for the lease; return HELD, or why it isn't needed any more.

        FAILED: the one who had it failed at this task of this run. DONE: `is_done`, which is asked each time that
        the lease has gone from one owner to the next, says that the work is done.
        Raises Refused where nothing can be written beside the path, and for what a stranger put in the lease's place.
        """
        watch: Optional[_Watch] = None
        while True:
            if self.failed() is not None:
                return FAILED
            if self._try():
                return HELD
            self._refuse_foreign()
            holder, beat = self.holder(), _read_json(os.path.join(self._directory, "beat")) or {}
            name = holder.nonce if holder else ""
            if watch is None or watch.nonce != name:
                if watch is not None and is_done():
                    return DONE
                watch = _Watch(name, self._timeout_s)
            if holder is not None:
                on_wait(holder, str(beat.get("progress", "")))
            if self._is_dead(holder, beat, watch):
                self._take_over(watch.nonce)
                continue
            with self._cancel:
                time.sleep(min(1.0, self._timeout_s / 10))

    def progress(self, text: str) -> None:
        """Say how far the work is, to those who wait."""
        self._progress = text

    def confirm(self) -> None:
        """Make sure that the lease is still ours, before something final is written.

        Raises Refused if it is not.
        """
        holder = self.holder()
        if holder is None or holder.nonce != self._owner.nonce:
            raise Refused(
                f"the lease on {self.path} was lost",
                expected=f"held by {self._owner}",
                found=f"held by {holder}" if holder else "nobody holds it",
                remedy="run it again; what is there is looked at anew",
                id="run.lease_lost",
            )

    def release(self, failure: Optional[dict[str, Any]] = None) -> None:
        """Give the lease back; a failure's result is left for waiters of the same run."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if not self._is_ours():
            return
        if failure is not None:
            record = {"run": self._owner.run, "task": self._owner.task, "host": self._owner.host, "result": failure}
            with contextlib.suppress(OSError):
                _write_json(self._failure, record)
        self._remove(self._directory)

    def _try(self) -> bool:
        """Take the lease if nobody has it: rename a directory that already names its owner.

        rename(2) puts a directory in place only where none with content stands. Over NFS a repeated request can
        report a failure that was a success, so after one the nonce decides.
        """
        staged = f"{self._base}.k3env-new-{self._owner.nonce}"
        try:
            os.mkdir(staged, 0o755)
            _write_json(os.path.join(staged, "owner.json"), vars(self._owner))
            _write_json(os.path.join(staged, "beat"), {"count": 0, "progress": ""})
        except OSError as error:
            shutil.rmtree(staged, ignore_errors=True)
            raise Refused(
                f"no lease can be taken beside {self.path}: {error.strerror}",
                expected=f"a writable {os.path.dirname(self._base)}",
                found=str(error),
                remedy="let the user of this run write there, or choose another place",
                id="run.lease",
            ) from None
        try:
            os.rename(staged, self._directory)
        except OSError:
            shutil.rmtree(staged, ignore_errors=True)
            if not self._is_ours():
                return False
        if self.failed() is not None:
            # The one before us has failed at this very task since we looked.
            self._remove(self._directory)
            return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._failure)
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()
        return True

    def _refuse_foreign(self) -> None:
        """Refuse what a stranger put in the lease's place: it could have everybody wait for good."""
        what = _foreign(self._directory)
        if what is not None:
            raise Refused(
                f"{self.path} can't be leased: {what} stands at {self._directory}",
                expected=f"a lease of uid {os.geteuid()}, or none",
                found=what,
                remedy="find out who put it there, and remove it; or choose a path in a directory of your own",
                id="run.lease",
            )

    def _is_ours(self) -> bool:
        holder = _read_owner(self._directory)
        return holder is not None and holder.nonce == self._owner.nonce

    def _renew(self) -> None:
        """Raise the counter until released; an owner that can't do so for half the time must stop its work."""
        count, last = 0, time.monotonic()
        while not self._stop.wait(self._timeout_s / 6):
            count += 1
            try:
                holder = _read_owner(self._directory)
                if holder is not None and holder.nonce == self._owner.nonce:
                    beat = {"count": count, "progress": self._progress}
                    _write_json(os.path.join(self._directory, "beat"), beat)
                    last = time.monotonic()
                    continue
            except OSError:
                holder = None
            if holder is not None or time.monotonic() - last > self._timeout_s / 2:
                self._cancel.request(LOST)
                os.kill(os.getpid(), 15)
                return

    def _is_dead(self, holder: Optional[Owner], beat: dict[str, Any], watch: _Watch) -> bool:
        if holder and (holder.host, holder.nodename) == (self._owner.host, self._owner.nodename):
            if holder.boot_id != self._owner.boot_id:
                return True
            if holder.pid_namespace == self._owner.pid_namespace and not os.path.exists(f"/proc/{holder.pid}"):
                return True
        # A name that nobody knows before, opened as new: where anybody may write, a known one may be a link by now.
        probe = f"{self._base}.k3env-wait-{nonce()}"
        try:
            with open(probe, "x", encoding="ascii") as file:
                file.write(str(time.monotonic()))
            os.unlink(probe)
        except OSError:
            # Nobody's counter can rise while the filesystem stands still.
            watch.restart()
            return False
        return watch.stands_still(beat.get("count"))

    def _take_over(self, nonce: str) -> None:
        moved = f"{self._base}.k3env-dead-{self._owner.nonce}"
        try:
            os.rename(self._directory, moved)
        except OSError:
            return  # another waiter was faster
        found = _read_owner(moved)
        if found is not None and found.nonce != nonce:
            # A new owner had come in between: give it back, unless a still newer one stands there.
            with contextlib.suppress(OSError):
                os.rename(moved, self._directory)
                return
        shutil.rmtree(moved, ignore_errors=True)

    def _remove(self, directory: str) -> None:
        gone = f"{self._base}.k3env-gone-{self._owner.nonce}"
        with contextlib.suppress(OSError):
            os.rename(directory, gone)
            shutil.rmtree(gone, ignore_errors=True)


class _Watch:
    """How long one owner's counter has stood still."""

    def __init__(self, nonce: str, timeout_s: float) -> None:
        self.nonce = nonce
        self._timeout_s = timeout_s
        self._count: Any = object()
        self._since = time.monotonic()

    def restart(self) -> None:
        self._since = time.monotonic()

    def stands_still(self, count: Any) -> bool:
        if count != self._count:
            self._count = count
            self.restart()
        return time.monotonic() - self._since > self._timeout_s


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


def _read_json(path: str) -> Optional[dict[str, Any]]:
    try:
        # What stands there may be anybody's: a link, a pipe that nobody writes to, a file without end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            value = json.loads(file.read(_RECORD_BYTES) or b"")
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _write_json(path: str, value: dict[str, Any]) -> None:
    temporary = f"{path}.{nonce()}"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _read_owner(directory: str) -> Optional[Owner]:
    value = _read_json(os.path.join(directory, "owner.json"))
    try:
        found: Owner = codec.decode(Owner, value)
    except codec.DecodeError:
        return None
    return found


def nonce() -> str:
    """Return a name that no other attempt has."""
    return secrets.token_hex(6)
