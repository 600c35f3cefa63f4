"""What earlier runs left in the state directory: the newest are kept, and whatever is still in use."""

from __future__ import annotations

import fcntl
import os
import shutil
import time

RUNS = 20
PAYLOAD_DAYS = 14


def prune(state: str, run: str, payload: str) -> None:
    """Remove old runs' directories and old payloads; what can't be removed stays."""
    runs = [path for path in _newest_first(os.path.join(state, "runs")) if os.path.basename(path) != run]
    for path in runs[RUNS:]:
        if not _works(path):
            shutil.rmtree(path, ignore_errors=True)
    # A worker imports from its payload until its end, which may be days away.
    before = time.time() - PAYLOAD_DAYS * 86400
    for path in _newest_first(os.path.join(state, "payload")):
        if os.path.basename(path) != payload and os.lstat(path).st_mtime < before:
            shutil.rmtree(path, ignore_errors=True)


def _newest_first(directory: str) -> list[str]:
    try:
        paths = [os.path.join(directory, name) for name in os.listdir(directory)]
        return sorted(paths, key=lambda path: os.lstat(path).st_mtime, reverse=True)
    except OSError:
        return []


def _works(path: str) -> bool:
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
