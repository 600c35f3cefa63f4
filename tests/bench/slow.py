"""Slow filesystems: a mounted one, where FUSE can be had, and a library that stands in for one in processes.

The mounted one is seen by every program, and by a kernel that remembers names for a while, as NFS's client does: the
nearest to a file server that can be had here, where the kernel has no NFS. The library makes every call take a round
trip, which is the worst that a client can be that knows nothing by heart; only what is linked dynamically sees it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
KNOWN_S = 3
"""How long names and attributes are known by heart: nfs(5), acregmin."""
_WAIT_S = 10.0


def no_mounts() -> str:
    """Return why nothing can be mounted here, or ""."""
    if os.geteuid() != 0:
        return "only root can mount it here"
    if not os.path.exists("/dev/fuse"):
        return "this kernel has no FUSE"
    found = subprocess.run(["pkg-config", "--exists", "fuse3"], capture_output=True, check=False)
    return "" if found.returncode == 0 else "libfuse3-dev and pkg-config are not installed"


@contextmanager
def mounted(directory: Path, work: Path, trip_us: int) -> Iterator[list[str]]:
    """Mount a directory over itself, each request to it taking a round trip, in a mount namespace of its own.

    Yields the words that run a command in there. `work` is an empty directory; the number of requests stands in its
    file `trips` in the end.
    """
    program, behind, trips = work / "slow_mount", work / "behind", work / "trips"
    behind.mkdir(parents=True)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True)
    subprocess.run(["gcc", "-O1", "-o", program, HERE / "slow_mount.c", *shlex.split(flags.stdout)], check=True)
    script = 'mount --bind "$1" "$2" && exec "$3" "$2" "$1"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", directory, behind, program]
    told = {"SLOW_US": str(trip_us), "SLOW_KNOWN_S": str(KNOWN_S), "SLOW_COUNT": str(trips)}
    server = subprocess.Popen(argv, env={**os.environ, **told}, stderr=subprocess.DEVNULL)
    within = ["nsenter", "--mount", "--target", str(server.pid), "--"]
    try:
        _await(server, directory)
        yield within
    finally:
        server.terminate()
        server.wait(_WAIT_S)


def _await(server: subprocess.Popen[bytes], directory: Path) -> None:
    ends = time.monotonic() + _WAIT_S
    while f" {directory} fuse.slow " not in _mounts(server.pid):
        if server.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"{directory} was not mounted over itself")
        time.sleep(0.02)


def _mounts(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/mounts").read_text()
    except OSError:
        return ""
