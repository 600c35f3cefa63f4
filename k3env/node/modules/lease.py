"""lease: who works beside a path, and the leases of dead owners removed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k3env.errors import Refused, TaskFailed
from k3env.node.modules import Module
from k3env.protocol.finding import PASS, WARN, Change, Finding

if TYPE_CHECKING:
    from k3env.node.leases.lease_files import Owner
    from k3env.node.leases.lease_look import Seen
    from k3env.node.machine import Machine
    from k3env.protocol.profile import Profile

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Lease(Module):
    """Tell who holds the leases beside some paths, or remove those whose owner is dead.

    Whether an owner lives, its counter says: that is watched for two beats, and for as long as a takeover needs before
    a lease is removed. A living owner's lease is never removed: cancel its run.
    """

    paths: tuple[str, ...]
    """What is leased: a checkout, or another path that a module changes. A `~/` at the beginning is the home of the
    user whom the task runs as."""
    remove_dead: bool = False
    """Remove the leases that stand there, if their owners are dead."""
    timeout_s: float = 30.0
    """How long a counter must stand still before its owner is dead, seconds."""

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("paths names none")
        for path in self.paths:
            if not path.startswith(("/", "~/")):
                raise ValueError(f"paths must be absolute, or begin with ~/, found {path!r}")
        if self.timeout_s < 1:
            raise ValueError(f"timeout_s must be at least 1, found {self.timeout_s:g}")

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return the leases that are to be removed, whether or not their owners turn out to be dead."""
        from k3env.node.leases.lease_look import standing

        if not self.remove_dead:
            return ()
        after = f"removed, if its counter stands still for {self.timeout_s:g} s"
        return tuple(
            Change(f"lease on {item.path}", f"held by {item.standing.owner}", after) for item in standing(self.paths)
        )

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Watch each counter, and take away the leases whose owners are dead.

        Raises Refused for a living owner, and where nobody can tell, after all others are gone.
        """
        from k3env.node.leases import lease_look

        left: list[Seen] = []
        for item in self._watched(machine, 3 * self.timeout_s):
            try:
                if item.state == lease_look.DEAD and lease_look.take_away(item):
                    continue
                there = item.beside.standing()
                if there is None or there.identity != item.standing.identity:
                    continue  # it was given back, or another one was faster
            except OSError as error:
                raise TaskFailed(
                    f"the dead lease on {item.path} can't be removed: {error.strerror}",
                    expected="a lease that this user may rename", found=f"held by {item.standing.owner}",
                    remedy="run this as its user, or as root: --user, --become", id="lease.held",
                ) from None  # fmt: skip
            left.append(item)
        if left:
            raise _refused(left[0])

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Tell of each lease, and each failure that the last owner left."""
        from k3env.node.leases.lease_look import GONE

        if self.remove_dead:
            return ()
        seen = self._watched(machine, self.timeout_s / 3 + 1)
        found = [_told(item) for item in seen if item.state != GONE]
        found += self._failures()
        return tuple(found) or (
            Finding("lease.held", PASS, "info", message=f"nobody holds a lease beside {', '.join(self.paths)}"),
        )

    def _watched(self, machine: Machine, for_s: float) -> tuple[Seen, ...]:
        from k3env.node.leases.lease_look import watched

        boot_id = machine.text(_BOOT_ID).strip()
        return watched(self.paths, boot_id, for_s, self.timeout_s, machine.cancel, machine.progress)

    def _failures(self) -> list[Finding]:
        import os

        from k3env.node.leases.lease_files import Beside

        found = []
        for path in dict.fromkeys(map(os.path.expanduser, self.paths)):
            record = Beside(path).failed()
            result = record.get("result") if record else None
            if record and isinstance(result, dict):
                run = str(record.get("run", "")).partition(".")[0]
                message = f"the last run that held {path} failed: {result.get('message')}"
                where = f"run {run} on {record.get('host')}, task {record.get('task')}"
                told = f"another run goes on from there; what that one said: invoke attach {run}"
                found.append(Finding("lease.failed", PASS, "info", "node", path, message, found=where, remedy=told))
        return found


def _told(item: Seen) -> Finding:
    from k3env.node.leases.lease_look import ALIVE, DEAD

    owner = item.standing.owner
    states = {ALIVE: "alive: its counter moves", DEAD: "dead"}
    state = states.get(item.state, f"its counter has stood still for {item.still_s:.0f} s")
    return Finding(
        "lease.held",
        PASS if item.state == ALIVE else WARN,
        "warn",
        subject=item.path,
        message=f"{item.path} is held by {owner}, {state}",
        expected=None if item.state == ALIVE else "an owner whose counter moves",
        found="; ".join(filter(None, (_since(owner), item.standing.progress and f"at: {item.standing.progress}"))),
        remedy=_ways(owner) if item.state == ALIVE else "if nobody is at work there: invoke leases --break",
    )


def _refused(item: Seen) -> Refused:
    from k3env.node.leases.lease_look import ALIVE, DEAD

    owner = item.standing.owner
    if item.state in (ALIVE, DEAD):
        return Refused(
            f"{item.path} is held by {owner}, who is alive",
            expected="a dead owner: its counter stands still", found=f"a counter that moves; {_since(owner)}",
            remedy=_ways(owner), id="lease.held",
        )  # fmt: skip
    return Refused(
        f"whether {owner}, who holds {item.path}, is alive can't be told",
        expected=f"a file can be written in {item.beside.parent} all the time",
        found=f"its counter was seen standing still for {item.still_s:.0f} s at a time",
        remedy="see whether this user may write there, and whether its file server answers", id="lease.held",
    )  # fmt: skip


def _since(owner: Owner) -> str:
    try:
        return time.strftime("since %Y-%m-%dT%H:%M:%SZ by its clock", time.gmtime(owner.since)) if owner.since else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _ways(owner: Owner) -> str:
    run = owner.run.partition(".")[0]
    return f"invoke attach {run} follows it, invoke cancel {run} ends it" if run else "see who made it"
