"""The processes of a tray, found by a variable that all of them inherit."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARKER = "K3ENV_TRAY"
"""The variable; its value is the tray's directory."""

_PASSES = 50
_PAUSE_S = 0.02


def running(tray: Path) -> list[int]:
    """Return the pids of a tray's processes. One whose environment was emptied is not found."""
    wanted = f"{MARKER}={tray}".encode()
    pids = []
    for entry in os.scandir("/proc"):
        # A process that ended since, or another user's, has an environment that can't be read.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return [pid for pid in pids if pid != os.getpid()]


def kill(tray: Path) -> int:
    """End a tray's processes at once, as a loss of power does. Returns how many were left at the end."""
    left = running(tray)
    for _ in range(_PASSES):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # What was killed may just have forked: look again until nothing is there.
        left = running(tray)
        if not left:
            break
        time.sleep(_PAUSE_S)
    return len(left)
