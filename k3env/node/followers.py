"""Who else is here: followers of this run, and another run that changes this node."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from typing import Any, Optional

from k3env.node.cancel import Cancel


def stop_when_unfollowed(run_dir: str, cancel: Cancel, after_s: float) -> None:
    """Cancel the work when nobody has followed this run for some seconds.

    A follower holds a shared lock on the file `followed`.
    """

    def watch() -> None:
        last = time.monotonic()
        with open(os.path.join(run_dir, "followed"), "a", encoding="ascii") as file:
            while True:
                time.sleep(1.0)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    fcntl.flock(file, fcntl.LOCK_UN)
                except OSError:
                    last = time.monotonic()
                if time.monotonic() - last > after_s:
                    cancel.request("nobody follows this run any more")
                    os.kill(os.getpid(), 15)
                    return

    threading.Thread(target=watch, daemon=True).start()


def claim_changes(start: dict[str, Any]) -> Optional[tuple[str, str]]:
    """Claim the right to change this node as this user; return who has it and what to do, or None.

    The lock is held until this process ends.
    """
    state = start["state_dir"] or f"/var/tmp/k3env-{os.geteuid()}"  # noqa: S108 - the boot code has checked it
    descriptor = os.open(os.path.join(state, "changing"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return _other(os.pread(descriptor, 4096, 0))
    os.ftruncate(descriptor, 0)
    record = {"run": start["run"], "owner": start["owner"], "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    os.pwrite(descriptor, json.dumps(record).encode(), 0)
    return None


def _other(record: bytes) -> tuple[str, str]:
    try:
        other = json.loads(record)
    except ValueError:
        other = {}
    run = str(other.get("run", "unknown")).partition(".")[0]
    who = f"run {run} of {other.get('owner') or 'somebody'}, since {other.get('since', 'just now')}"
    return f"another run is changing this node: {who}", f"wait, or: invoke attach {run} · invoke cancel {run}"
