"""What an error of the operating system means for who reads it, and what to do about it."""

from __future__ import annotations

import errno
import os

_WRONG_KIND = "see what it is, and move it away: mv {path} {path}.old; then run it again"
_REMEDIES = {
    errno.EISDIR: f"a file belongs there, and a directory stands in its place; {_WRONG_KIND}",
    errno.ENOTDIR: f"a directory belongs at {{path}}, and something else stands there; {_WRONG_KIND}",
    errno.ENOSPC: "make room there; see df -h and df -i",
    errno.EDQUOT: "make room there, or have the quota raised; see quota -s",
    errno.EROFS: "mount it read-write, or name another place",
    errno.ESTALE: "the network filesystem lost it: mount it again on this node, then run it again",
    errno.ELOOP: "links lead in a circle there: remove them",
}


def message(error: OSError) -> str:
    """Return what happened, with the path."""
    return f"{error.strerror or error}{f': {_path(error)}' if _path(error) else ''}"


def remedy(error: OSError) -> str:
    """Return what to do."""
    path = _not_a_directory(_path(error)) if error.errno == errno.ENOTDIR else _path(error)
    known = _REMEDIES.get(error.errno or 0) if path else None
    return known.format(path=path) if known else "see what the path is, and whether this user may use it"


def _not_a_directory(path: str) -> str:
    """Return what of a path is in the way: the first part of it that is there and is no directory."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(2, len(parts) + 1))
    return next((part for part in above if os.path.lexists(part) and not os.path.isdir(part)), path)


def _path(error: OSError) -> str:
    return error.filename.decode("utf-8", "replace") if isinstance(error.filename, bytes) else str(error.filename or "")
