"""Leases as one sees them who wants none of them: who holds each, and whether that owner lives."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional

from k3env.node.cancel import Cancel
from k3env.node.leases import present
from k3env.node.leases.lease import Watch
from k3env.node.leases.lease_files import Beside, Owner, Standing

ALIVE, DEAD, STILL, GONE = "alive", "dead", "still", "gone"
"""Its counter moved; it stood still for long enough, or its process is gone; neither was seen; it was given back."""
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Seen:
    """A lease that was looked at."""

    path: str
    beside: Beside
    standing: Standing
    state: str = STILL
    still_s: float = 0.0
    """For how long its counter stood still, seconds."""


def standing(paths: Sequence[str]) -> tuple[Seen, ...]:
    """Return the leases that stand beside paths. Raises Refused for what is no lease, or a stranger's."""
    found = []
    for path in dict.fromkeys(map(os.path.expanduser, paths)):
        beside = Beside(path)
        there = beside.standing()
        if there is not None:
            found.append(Seen(path, beside, there))
    return tuple(found)


def watched(
    paths: Sequence[str],
    boot_id: str,
    for_s: float,
    timeout_s: float,
    cancel: Cancel,
    tell: Callable[[str], object] = lambda text: None,
) -> tuple[Seen, ...]:
    """Watch leases side by side until of each is known whether its owner lives, at most for `for_s` seconds.

    `boot_id` is this node's: of a process of this very node one needn't wait for the counter.
    """
    ends = time.monotonic() + for_s
    found = standing(paths)
    watches = {item.path: Watch(timeout_s) for item in found}
    while True:
        found = tuple(_looked(item, watches[item.path], boot_id) for item in found)
        waiting = [item for item in found if item.state == STILL]
        if not waiting or time.monotonic() > ends:
            return found
        longest = max(item.still_s for item in waiting)
        tell(f"watching {len(waiting)} counter(s): still for {longest:.0f} s of {timeout_s:.0f} s")
        with cancel:
            time.sleep(min(_PAUSE_S, timeout_s / 10))


def _looked(item: Seen, watch: Watch, boot_id: str) -> Seen:
    if item.state != STILL:
        return item
    try:
        item.beside.refresh()
    except OSError:
        watch.restart()  # the filesystem stands still, or we may not write: then nothing proves a death
    there = item.beside.standing()
    if there is None:
        return replace(item, state=GONE)
    if (there.identity, there.count) != (item.standing.identity, item.standing.count):
        return replace(item, standing=there, state=ALIVE)
    dead = watch.look(there) or is_gone_here(there.owner, boot_id)
    return replace(item, standing=there, state=DEAD if dead else STILL, still_s=watch.still_s)


def is_gone_here(owner: Owner, boot_id: str) -> bool:
    """Return whether an owner was a process of this node since it was booted, and is there no more."""
    try:
        here = os.readlink("/proc/self/ns/pid")
    except OSError:
        return False
    same = (owner.boot_id, owner.pid_namespace, owner.nodename) == (boot_id, here, os.uname().nodename)
    return same and present.is_gone(owner.pid)


def take_away(item: Seen) -> Optional[str]:
    """Take away a lease as a waiter takes it over; return where it is now, None where its owner was alive after all.

    Raises OSError if this user may not.
    """
    return item.beside.take_away(item.standing)
