"""Become another user for good: for children of root that touch what is that user's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pwd

DROPPED = ("TMPDIR",)
"""Variables that lead into directories of who we were."""


def become(entry: pwd.struct_passwd) -> dict[str, str]:
    """Give up everything else; return what the user's environment says of it."""
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.chdir("/")
    said = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    os.environ.update(said)
    for name in DROPPED:
        os.environ.pop(name, None)
    return said
