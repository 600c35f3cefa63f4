"""A mount namespace of one's own, for mounts that the machine of the tests does not have."""

from __future__ import annotations

import os
import subprocess

import pytest


def noexec(directory: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command where a directory is an empty filesystem mounted noexec; skip the test where that can't be had."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    mount = 'mount -t tmpfs -o noexec,mode=700 none "$1" || exit 77; shift; exec "$@"'
    try:
        done = subprocess.run(
            [*unshare, "sh", "-c", mount, "sh", directory, *argv], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no unshare")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    return done
