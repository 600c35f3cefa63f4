"""Rules that parameters of several modules share."""

from __future__ import annotations

import os
import re

_CREDENTIALS = re.compile(r"://[^/@\s]*:[^/@\s]*@|https?://[^/@\s]+@")

NETRC = "pip gives the URL to programs of its own, where `ps` shows it; put them into ~/.netrc"


def check_path(name: str, path: str) -> None:
    """Raise ValueError for a path that is not absolute and plain: two names of one checkout would be two leases."""
    if any(char < " " or char == "\x7f" for char in path):
        raise ValueError(f"{name} must hold no line end and no other control character, found {path!r}")
    # POSIX leaves two slashes at the front as they are.
    if not os.path.isabs(path) or os.path.normpath(path) != path or path == "/" or path.startswith("//"):
        raise ValueError(
            f"{name} must be an absolute path without `.`, `..`, `//` or a slash at its end, found {path!r}"
        )


def check_commit(name: str, commit: str) -> None:
    """Raise ValueError for anything but a full commit: a short one, or a branch, may be another one tomorrow."""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ValueError(f"{name} must be 40 hexadecimal digits in small letters, found {commit!r}")


def has_credentials(url: str) -> bool:
    """Return whether a name or password stands in a URL; ssh's user name does not count."""
    return bool(_CREDENTIALS.search(url))
