"""Who else is here: followers of this run, and another run that changes this node."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from typing import Any, Optional

from k3env.protocol import codec


def stop_when_unfollowed(run_dir: str, after_s: float) -> None:
    """Have the work cancelled when nobody has followed this run for some seconds.

    A follower holds a shared lock on the file `followed`. The watch is a process, not a thread: facts are read in
    forked children, and a fork of several threads may copy a lock that nobody will ever release.
    """
    worker = os.getpid()
    if os.fork():
        return
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _watch(worker, os.path.join(run_dir, "followed"), after_s)
    finally:
        os._exit(0)


def _watch(worker: int, path: str, after_s: float) -> None:
    last = time.monotonic()
    with open(path, "a", encoding="ascii") as file:
        while os.getppid() == worker:
            time.sleep(1.0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(file, fcntl.LOCK_UN)
            except OSError:
                last = time.monotonic()
            if time.monotonic() - last > after_s:
                os.kill(worker, signal.SIGUSR2)
                return


def claim_changes(start: dict[str, Any]) -> Optional[tuple[str, str]]:
    """Claim the right to change this node as this user; return who has it and what to do, or None.

    The lock is held until this process ends.
    """
    state = start["state_dir"] or f"/var/tmp/k3env-{os.geteuid()}"  # noqa: S108 - the boot code has checked it
    path = os.path.join(state, f"changing-{os.uname().nodename}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        other = codec.plain(record)
    except ValueError:
        other = {}
    run = str(other.get("run", "unknown")).partition(".")[0]
    who = f"run {run} of {other.get('owner') or 'somebody'}, since {other.get('since', 'just now')}"
    return f"another run is changing this node: {who}", f"wait, or: invoke attach {run} · invoke cancel {run}"
