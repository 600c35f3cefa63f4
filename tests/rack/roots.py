"""Root filesystems of nodes: this machine's, and Debian 11 with Python 3.9, made once and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

HOST = "/"
_FORMAT = 2
"""Of what is in it: another list of packages is another number."""
_PACKAGES = "openssh-server,python3,python3-venv,git,procps,ca-certificates,sudo"


def bullseye() -> str:
    """Return the root of a Debian 11, which takes half a minute the first time.

    Raises RuntimeError with mmdebstrap's words if it can't be made.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "k3env-tests"
    root = base / f"bullseye-{_FORMAT}"
    base.mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            _make(root)
    return str(root)


def _make(root: Path) -> None:
    fresh = root.with_name(f"{root.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    # Without a mirror, mmdebstrap takes the release's own.
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", "bullseye", str(fresh)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    if done.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        said = done.stderr[-1000:].strip()
        raise RuntimeError(f"the rack needs a Debian 11 root filesystem, and mmdebstrap failed:\n{said}")
    fresh.rename(root)
