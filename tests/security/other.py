"""Another user of this machine, for tests that run as root: what they make, run and look at is really theirs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAME = "daemon"
"""An account that every Debian and Red Hat has, and nothing runs as."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


def uid() -> int:
    """Return the other user's id."""
    return pwd.getpwnam(NAME).pw_uid


def run(*argv: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    """Run a command as the other user."""
    entry = pwd.getpwnam(NAME)
    return subprocess.run(
        [str(word) for word in argv],
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        **more,  # type: ignore[call-overload]
    )


def give(path: Path) -> Path:
    """Give a tree to the other user."""
    for at in (path, *path.rglob("*")):
        os.lchown(at, uid(), pwd.getpwnam(NAME).pw_gid)
    return path


@contextmanager
def open_ground() -> Iterator[Path]:
    """Make a directory that everybody can enter, which pytest's own is not; it is root's."""
    path = Path(tempfile.mkdtemp(prefix="k3env-security-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)
