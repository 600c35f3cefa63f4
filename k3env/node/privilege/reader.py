"""Who reads facts where root checks: what root can open, and repairs by opening it, says nothing about a job."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Optional

from k3env.node.__main__ import is_root
from k3env.protocol.context import CONTEXTS

if TYPE_CHECKING:
    from k3env.protocol.profile import Profile

NOBODY = "nobody"
_NOGROUP = 65534


def reader(profile: Profile) -> Optional[pwd.struct_passwd]:
    """Return who root becomes to read facts, or None: it reads them itself, as does everybody else.

    That is the user of Slurm's job, else the owner of the environment, else, where no job is near, nobody. Root in a
    container is what its ranks are too. Source: slurm.conf's manual, SLURM_JOB_UID and SLURM_JOB_USER.
    """
    if not is_root():
        return None
    job = _of_job()
    if job is not None:
        return job if job.pw_uid else None
    for name in (profile.user, NOBODY if CONTEXTS[profile.context].fail_open else None):
        if name is not None:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                return _entry(_NOGROUP)
    return None


def name() -> str:
    """Return the name of who checks are about: the user of Slurm's job, else who we are."""
    entry = (_of_job() if is_root() else None) or _entry(os.geteuid())
    return entry.pw_name


def _of_job() -> Optional[pwd.struct_passwd]:
    said = os.environ.get("SLURM_JOB_UID", "")
    if not said.isdigit():
        return None
    return _entry(int(said))


def _entry(uid: int) -> pwd.struct_passwd:
    """Return a user's entry, also of one whom this node has no name for."""
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        said, group = os.environ.get("SLURM_JOB_USER"), os.environ.get("SLURM_JOB_GID", "")
        gid = int(group) if group.isdigit() else _NOGROUP
        return pwd.struct_passwd((said or str(uid), "x", uid, gid, "", "/", "/bin/sh"))
