"""The lease beside a path: one owner changes it at a time, on whatever nodes they are.

The owner raises a counter. Clocks of two nodes are never compared: an owner is dead when its counter stands still for
`timeout_s` on the waiter's own monotonic clock while the waiter, whose own writes there succeed, looks all the time.
Who stood still itself, or waited for the filesystem, has not looked, and begins anew.
A failure is left as `.NAME.k3env-failed.json`, which waiters of the same run adopt.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable, Optional, Protocol

from k3env.errors import Refused
from k3env.node.cancel import Cancel
from k3env.node.leases import lease_files, present
from k3env.node.leases.lease_files import UNKNOWN, Beside, Owner, Standing, nonce

TIMEOUT_S = 30.0
HELD, FAILED, DONE = "held", "failed", "done"
LOST = "the lease was lost"
"""Why an owner that can't renew stops its work."""
_AWAY_S = (0.0, 0.2, 0.4, 0.8)
"""Somebody who took a living owner's lease away gives it back at once."""


class Counted(Protocol):
    """What has a counter."""

    @property
    def identity(self) -> str:
        """What tells it from the one before."""

    @property
    def count(self) -> Any:
        """The counter."""


class Watch:
    """How long a lease's counter has stood still, as seen by one who looks all the time."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        """Looks lie at most half of `timeout_s` apart; a longer gap is time in which nobody looked."""
        self._timeout_s = timeout_s
        self._seen: Optional[tuple[str, Any]] = None
        self.restart()

    def restart(self) -> None:
        """Begin anew: what was not seen is not known."""
        self._since = self._looked = time.monotonic()

    @property
    def still_s(self) -> float:
        """For how long the counter has stood still, seconds."""
        return self._looked - self._since

    def look(self, standing: Counted) -> bool:
        """Take in what stands there now; return whether its owner is dead."""
        seen, now = (standing.identity, standing.count), time.monotonic()
        if seen != self._seen or now - self._looked > self._timeout_s / 2:
            self._seen = seen
            self.restart()
        self._looked = now
        return self.still_s > self._timeout_s


class Lease:
    """The lease of one path, taken by `acquire` and given back by `release`."""

    def __init__(self, path: str, owner: Owner, cancel: Cancel, timeout_s: float = TIMEOUT_S) -> None:
        """`owner.nonce` must be unique to this attempt."""
        self.path = path
        self._beside = Beside(path)
        self._owner = owner
        self._cancel = cancel
        self._timeout_s = timeout_s
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._directory: Optional[int] = None
        self._progress = ""
        self._stood_still = False
        """Whether a waiter may have judged us dead."""

    def holder(self) -> Optional[Owner]:
        """Return who holds the lease now, UNKNOWN where that can't be read, or None."""
        found = self._beside.standing()
        return found.owner if found is not None else None

    def failed(self) -> Optional[Mapping[str, Any]]:
        """Return {host, result} with which this very task of this run failed on another host, or None."""
        record = self._beside.failed()
        if record and (record.get("run"), record.get("task")) == (self._owner.run, self._owner.task):
            return record
        return None

    def acquire(self, on_wait: Callable[[Owner, str], None], is_done: Callable[[], bool] = lambda: False) -> str:
        """Wait for the lease; return HELD, or why it isn't needed any more.

        FAILED: the one who had it failed at this task of this run. DONE: `is_done`, which is asked each time that
        the lease has gone from one owner to the next, says that the work is done.
        Raises Refused where nothing can be written beside the path, and for what a stranger put in the lease's place.
        """
        self._refuse_way()
        watch, before = Watch(self._timeout_s), ""
        while True:
            can_write = self._refresh()
            standing = self._beside.standing()
            if self.failed() is not None:
                return FAILED
            if standing is None:
                if self._try():
                    return HELD
            else:
                if before not in ("", standing.identity) and is_done():
                    return DONE
                before = standing.identity
                on_wait(standing.owner, standing.progress)
                if not can_write:
                    # Nobody's counter can rise while the filesystem stands still.
                    watch.restart()
                elif watch.look(standing) or is_gone(standing.owner, self._owner):
                    self._take_over(standing)
                    continue
            with self._cancel:
                time.sleep(min(1.0, self._timeout_s / 10))

    def _refuse_way(self) -> None:
        """Raise Refused where the path lies in a directory that a stranger made, or that a stranger's link leads to."""
        from k3env.node import way

        with contextlib.suppress(OSError):  # what can't be written to says so when that is tried
            os.close(way.entered(os.path.dirname(os.path.abspath(self.path))))

    def progress(self, text: str) -> None:
        """Say how far the work is, to those who wait."""
        self._progress = text

    def confirm(self) -> None:
        """Make sure that the lease is still ours, before something final is written.

        Raises Refused if it is not.
        """
        standing: Optional[Standing] = None
        for pause in _AWAY_S:
            time.sleep(pause)
            self._refresh()
            standing = self._beside.standing()
            if standing is not None:
                break
        if standing is None or standing.owner.nonce != self._owner.nonce:
            raise Refused(
                f"the lease on {self.path} was lost",
                expected=f"held by {self._owner}",
                found=f"held by {standing.owner}" if standing else "nobody holds it",
                remedy="run it again; what is there is looked at anew",
                id="run.lease_lost",
            )

    def release(self, failure: Optional[dict[str, Any]] = None) -> None:
        """Give the lease back; a failure's result is left for waiters of the same run."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(OSError, Refused):
            self._refresh()
            if self._beside.is_of(self._owner):
                if failure is not None:
                    self._leave(failure)
                self._give_back()
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _leave(self, failure: dict[str, Any]) -> None:
        record = {"run": self._owner.run, "task": self._owner.task, "host": self._owner.host, "result": failure}
        with contextlib.suppress(OSError):
            self._beside.fail(record)

    def _give_back(self) -> None:
        ours = self._beside.standing()
        if ours is not None and ours.owner.nonce == self._owner.nonce:
            grave = self._beside.take_away(ours)
            # A waiter that has judged us dead must not take the next owner for us.
            if grave is not None and not self._stood_still:
                shutil.rmtree(grave, ignore_errors=True)

    def _refresh(self) -> bool:
        """Look at the names beside the path anew; return whether that could be done."""
        try:
            self._beside.refresh()
        except OSError:
            return False
        return True

    def _try(self) -> bool:
        """Take the lease if nobody has it."""
        try:
            self._directory = self._beside.put(self._owner)
        except OSError as error:
            raise Refused(
                f"no lease can be taken beside {self.path}: {error.strerror}",
                expected=f"a writable {self._beside.parent}",
                found=str(error),
                remedy="let the user of this run write there, or choose another place",
                id="run.lease",
            ) from None
        if self._directory is None:
            return False
        if self.failed() is not None:
            # The one before us has failed at this very task since we looked.
            self.release()
            return False
        with contextlib.suppress(OSError):
            os.unlink(self._beside.failure)
        self._beside.sweep(self._directory)
        self._thread = threading.Thread(target=self._renew, args=(self._directory,), daemon=True)
        self._thread.start()
        return True

    def _renew(self, directory: int) -> None:
        """Raise the counter until released; an owner that can't do so for half the time must stop its work."""
        count, last = 0, time.monotonic()
        while not self._stop.wait(self._timeout_s / 6):
            count += 1
            holder: Optional[Standing] = None
            try:
                if time.monotonic() - last > self._timeout_s / 2:
                    # We stood still, or the filesystem did: what this client knows by heart may be old.
                    self._stood_still = True
                    self._beside.refresh()
                holder = self._beside.standing()
                if holder is not None and holder.owner.nonce == self._owner.nonce:
                    lease_files.beat(directory, count, self._progress)
                    last = time.monotonic()
                    continue
            except (OSError, Refused):
                pass  # then how long it lasts decides
            known = holder is not None and holder.owner not in (UNKNOWN, self._owner)
            if known or time.monotonic() - last > self._timeout_s / 2:
                self._cancel.request(LOST)
                os.kill(os.getpid(), 15)
                return

    def _take_over(self, standing: Standing) -> None:
        try:
            self._beside.take_away(standing)
        except OSError as error:
            raise Refused(
                f"the lease on {self.path} is of a dead owner, and this user may not take it over: {error.strerror}",
                expected=f"a lease that uid {os.geteuid()} may rename",
                found=f"{self._beside.directory}, held by {standing.owner}",
                remedy="let its user, or root, run: invoke leases --break",
                id="run.lease",
            ) from None


def is_gone(holder: Owner, me: Owner) -> bool:
    """Return whether a holder was a process of this very node, and is there no more."""
    if (holder.host, holder.nodename) != (me.host, me.nodename):
        return False
    if holder.boot_id != me.boot_id:
        return True
    return holder.pid_namespace == me.pid_namespace and present.is_gone(holder.pid)


__all__ = ["DONE", "FAILED", "HELD", "LOST", "TIMEOUT_S", "Lease", "Owner", "Watch", "is_gone", "nonce"]
