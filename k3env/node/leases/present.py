"""Whether a process of this node is there still, also one that this user is not shown."""

from __future__ import annotations

import os


def is_gone(pid: int) -> bool:
    """Return whether no process of this node has a pid.

    That /proc lists none says nothing: mounted with hidepid it shows a user no process of others. kill(2) tells them
    apart all the same: ESRCH for what is not there, EPERM for another user's.
    """
    if pid <= 0:
        return True  # kill(2) would take it for a group
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False
