"""Become another user for good: for children of root that touch what is that user's."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pwd

DROPPED = (
    *("TMPDIR", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *(f"XDG_{what}_HOME" for what in ("CACHE", "CONFIG", "DATA", "STATE")),
)
"""Variables that lead into directories of who we were, where the user's git, pip and podman would be refused."""


def become(entry: pwd.struct_passwd) -> dict[str, str]:
    """Give up everything else; return what the user's environment says of it."""
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.chdir("/")
    said = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    runtime = f"/run/user/{entry.pw_uid}"
    if _is_own(runtime, entry.pw_uid):
        said["XDG_RUNTIME_DIR"] = runtime  # logind's; without one, rootless podman takes a place of its own
    for name in DROPPED:
        os.environ.pop(name, None)
    os.environ.update(said)
    return said


def _is_own(path: str, uid: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid
