"""The worker's side of a run: a journal that followers read, from any sequence number on."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time

from k3env.protocol.line import LINE_BYTES, PROGRESS, TASK, VERSION, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

JOURNAL_BYTES = 8 << 20
PROGRESS_EVERY_S = 0.5
ROOM_S = 5.0
"""How long a line waits for room on a full disk."""


class Journal:
    """Append events as JSON lines that begin with their sequence number; hold the lock that says "alive"."""

    def __init__(self, run_dir: str, notify: int) -> None:
        """Open the journal and lock it; `notify` is a pipe that the first follower waits on.

        Raises OSError when another worker holds this run, or nothing can be written.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(os.path.join(run_dir, "journal"), flags, 0o600)
        # POSIX locks are not inherited over fork, so a child that is left behind doesn't look like the worker.
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(os.path.join(run_dir, "pid"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
        self._notify = notify
        self._seq = 0
        self._bytes = 0
        self._last_progress = 0.0
        self._wake()

    def append(self, kind: str, task: Optional[str] = None, data: Optional[dict[str, Any]] = None) -> None:
        """Write one event; progress is thinned out, and dropped where the journal has grown too long."""
        if kind == WAITING and self._bytes > JOURNAL_BYTES:
            return
        if kind == PROGRESS:
            now = time.monotonic()
            if now - self._last_progress < PROGRESS_EVERY_S or self._bytes > JOURNAL_BYTES:
                return
            self._last_progress = now
        elif kind == TASK:
            self._last_progress = 0.0  # the first word of a task is always told
        self._seq += 1
        line = self._line(kind, task, data or {})
        if len(line) > LINE_BYTES:
            line = self._line(kind, task, shortened(data or {}))
        if not self._write(line, needed=kind not in (PROGRESS, WAITING)):
            self._seq -= 1
            return
        self._bytes += len(line)
        self._wake()

    def _write(self, line: bytes, needed: bool) -> bool:
        """Write a line, waiting for room: who fills a disk mostly fails by it and gives the room back.

        What has been begun is ended, since a follower may have read it; a line that isn't needed waits for nothing.
        Raises OSError if no room comes.
        """
        ends = time.monotonic() + ROOM_S
        left = line
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                if left is line and not needed:
                    return False
                if time.monotonic() > ends:
                    raise
                time.sleep(0.1)
        return True

    def _line(self, kind: str, task: Optional[str], data: dict[str, Any]) -> bytes:
        event = {"seq": self._seq, "kind": kind, "time": round(time.time(), 3), "task": task, "data": data}
        return json.dumps({**event, "version": VERSION}, separators=(",", ":")).encode() + b"\n"

    def _wake(self) -> None:
        try:
            os.write(self._notify, b"\n")
        except OSError:
            # No follower any more, or one that has not read yet: both find the journal by themselves.
            return


def works(path: str) -> bool:
    """Return whether a run's worker still holds the lock on its journal."""
    try:
        journal = os.open(os.path.join(path, "journal"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(journal)
    return False


def shortened(data: dict[str, Any]) -> dict[str, Any]:
    """Return an event's data cut down to what fits into one line, saying what was left out."""
    short = dict(data)
    for key in ("changes", "findings"):
        items = short.get(key)
        if isinstance(items, list) and len(items) > 20:
            short[key] = items[:20]
            short["message"] = f"{short.get('message', '')} (+{len(items) - 20} more {key})".strip()
    return {key: _clipped(value, 2000) for key, value in short.items()}


def _clipped(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length else value[:length] + "…"
    if isinstance(value, list):
        return [_clipped(item, length // 4) for item in value]
    if isinstance(value, dict):
        return {key: _clipped(item, length) for key, item in value.items()}
    return value
