"""What earlier runs left in the state directory: the newest are kept, and whatever is still in use."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress

from k3env.node import about
from k3env.node.journal import works

RUNS = 20
PAYLOADS, PAYLOAD_DAYS = 8, 14
"""The newest are kept by number, and none for longer than so many days after its last use."""


def prune(state: str, run: str, payload: str) -> None:
    """Remove old runs' directories and old payloads; what can't be removed stays."""
    used = {payload}
    with suppress(OSError):
        os.utime(os.path.join(state, "payload", payload))
    runs = [path for path in _newest_first(os.path.join(state, "runs")) if os.path.basename(path) != run]
    for number, path in enumerate(runs):
        if works(path):
            # A worker imports from its payload until its end, which may be days away.
            used.add(str(about.read(path).get("payload")))
        elif number >= RUNS:
            shutil.rmtree(path, ignore_errors=True)
    payloads = [path for path in _newest_first(os.path.join(state, "payload")) if os.path.basename(path) not in used]
    before = time.time() - PAYLOAD_DAYS * 86400
    for number, path in enumerate(payloads):
        if number >= PAYLOADS or os.lstat(path).st_mtime < before:
            shutil.rmtree(path, ignore_errors=True)


def _newest_first(directory: str) -> list[str]:
    try:
        paths = [os.path.join(directory, name) for name in os.listdir(directory)]
        return sorted(paths, key=lambda path: os.lstat(path).st_mtime, reverse=True)
    except OSError:
        return []
