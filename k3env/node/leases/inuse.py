"""An environment in use is not rebuilt: servers elsewhere say so by markers, those of this node by their memory.

A marker's counter is watched as a lease's is: clocks of two nodes are never compared.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from k3env.errors import Refused
from k3env.node.leases import present
from k3env.node.leases.lease import Watch
from k3env.node.leases.lease_files import nonce, read_json
from k3env.node.leases.marking import EVERY_S, PLACE
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.finding import FAIL, UNKNOWN, WARN, Finding, Unreadable

if TYPE_CHECKING:
    from k3env.node.facts.mapped import Mapped
    from k3env.node.privilege.lookout import Lookout

Look = Callable[[Machine, "tuple[str, ...]"], "Union[Mapped, Unreadable]"]

STALE_S = 3.5 * EVERY_S
"""A marker whose counter stands still for so long is of a rank that is gone."""
ID = "run.in_use"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_LISTED = 3


@dataclass(frozen=True)
class Marker:
    """What a server says of itself."""

    name: str
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: str
    """Of the process, in ticks since the boot."""
    user: str
    job: str
    rank: str
    since: float
    count: Any

    def __str__(self) -> str:
        """Return it as a person reads it."""
        words = [f"pid {self.pid}", f"of {self.user}", *([f"job {self.job}"] if self.job else [])]
        words += [f"rank {self.rank}"] if self.rank else []
        with suppress(OverflowError, ValueError, OSError):
            words.append(time.strftime("since %Y-%m-%dT%H:%M:%SZ by its clock", time.gmtime(self.since)))
        return f"a server on {self.host} ({', '.join(words)})"


def seen(machine: Machine, roots: tuple[str, ...]) -> Union[Mapped, Unreadable]:
    """Look at the memory of this node's processes: of this user's, as root of everyone's."""
    from k3env.node.facts import Facts
    from k3env.node.facts.mapped import mapped
    from k3env.protocol.profile import Profile

    look = mapped(roots)
    found: Union[Mapped, Unreadable] = Facts(machine, Profile()).collect((look,))[look]
    return found


def by(lookout: Lookout) -> Look:
    """Return a look by somebody who sees more than we do, and has been told at what."""

    def look(machine: Machine, roots: tuple[str, ...]) -> Union[Mapped, Unreadable]:
        from k3env.node.facts.mapped import Mapped

        answer = lookout.ask()
        if answer is None:
            return seen(machine, roots)
        found: Union[Mapped, Unreadable] = codec.decode(Union[Mapped, Unreadable], answer)
        return found

    return look


def refuse_in_use(machine: Machine, roots: tuple[str, ...], look: Look = seen) -> tuple[Finding, ...]:
    """Look whether somebody serves from these directories before they change; return what could not be seen.

    Markers of the dead are removed.

    Raises Refused with host, user, job, since when.
    """
    finding = in_use(machine, roots, look, tidy=True)
    if finding is not None and finding.status == FAIL:
        raise Refused(finding.message, expected=finding.expected, found=finding.found, remedy=finding.remedy, id=ID)
    return (finding,) if finding is not None else ()


def in_use(machine: Machine, roots: tuple[str, ...], look: Look = seen, *, tidy: bool) -> Optional[Finding]:
    """Return a finding that fails where somebody serves from one of these directories, or one that can't be sure."""
    from k3env.node.facts.mapped import told

    found = look(machine, roots)
    users = [] if isinstance(found, Unreadable) else [told(process) for process in found.processes]
    users += [str(marker) for root in roots for marker in living(machine, root, tidy=tidy)]
    if users:
        more = f"; and {len(users) - _LISTED} more" if len(users) > _LISTED else ""
        return Finding(
            ID, FAIL, subject=roots[0],
            message=f"{roots[0]} is in use: {'; '.join(users[:_LISTED])}{more}",
            expected="nobody who serves from what is to be changed", found=f"{len(users)} in use",
            remedy="wait for its end, or end it (a Slurm job: scancel JOB); if it may be disturbed: --force-in-use",
        )  # fmt: skip
    if isinstance(found, Unreadable):
        return Finding(
            ID, UNKNOWN, "warn", subject=roots[0],
            message=f"whether a process of this node has files of {roots[0]} in memory is unknown",
            expected="an answer of /proc for each process", found=found.reason,
            remedy="see which process hangs: ps -eo pid,stat,wchan,comm",
        )  # fmt: skip
    return None


def warned(finding: Finding) -> Finding:
    """Return it for check mode: a run that changes would be refused."""
    import dataclasses

    return dataclasses.replace(finding, status=WARN, severity="warn") if finding.status == FAIL else finding


def living(machine: Machine, root: str, *, tidy: bool, stale_s: float = STALE_S) -> tuple[Marker, ...]:
    """Return the markers of servers that are alive: all that are known as soon as one is.

    Of a process of this very node nobody needs to wait for the counter. `tidy`: markers of the dead are removed;
    without, nothing is written, and nobody waits for longer than a living one needs to be seen.
    """
    directory = os.path.join(root, PLACE)
    if tidy:
        _refresh(directory)
    before = {marker.name: marker for marker in _markers(directory)}
    if not before:
        return ()
    boot_id = machine.text("/proc/sys/kernel/random/boot_id").strip()
    watches = {name: Watch(stale_s) for name in before}
    dead: set[str] = set()
    # Before a change each one is seen alive or dead: while the filesystem stands still, neither can be.
    ends = math.inf if tidy else time.monotonic() + min(stale_s, EVERY_S + 2)
    while True:
        alive: list[Marker] = []
        for marker in _markers(directory):
            first = before.get(marker.name)
            here = _is_here(marker, boot_id)
            if here or (here is None and (first is None or first.count != marker.count)):
                alive.append(marker)
            elif here is False or watches[marker.name].look(_Counter(marker.name, marker.count)):
                dead.add(marker.name)
        waiting = {marker.name for marker in _markers(directory)} & (before.keys() - dead)
        if alive or not waiting or time.monotonic() > ends:
            break
        machine.progress(f"looking whether {root} is in use: {len(waiting)} marker(s), up to {stale_s:.0f} s")
        with machine.cancel:
            time.sleep(min(1.0, stale_s / 20))
    if tidy:
        for name in dead:
            with suppress(OSError):
                os.unlink(os.path.join(directory, name))
    return tuple(alive)


@dataclass(frozen=True)
class _Counter:
    """What a watch looks at."""

    identity: str
    count: Any


def _markers(directory: str) -> Iterator[Marker]:
    """Read the markers of a checkout; what is none is passed over, links are not followed."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        said = read_json(os.path.join(directory, name)) if _NAME.fullmatch(name) else None
        if said is None or not isinstance(said.get("pid"), int):
            continue
        words = {key: str(said.get(key, ""))[:200] for key in _WORDS}
        since = said.get("since")
        moment = float(since) if isinstance(since, (int, float)) else 0.0
        yield Marker(name, pid=said["pid"], since=moment, count=said.get("count"), **words)


_WORDS = ("host", "boot_id", "pid_namespace", "started", "user", "job", "rank")


def _is_here(marker: Marker, boot_id: str) -> Optional[bool]:
    """Return whether a process of this node is alive; None: it is of another node or container, or hidden from us."""
    try:
        if (marker.boot_id, marker.pid_namespace) != (boot_id, os.readlink("/proc/self/ns/pid")):
            return None
        if present.is_gone(marker.pid):
            return False
        with open(f"/proc/{marker.pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None  # then its counter decides
    return words[0] not in (b"Z", b"X") and words[19].decode() == marker.started


def _refresh(directory: str) -> None:
    """Write there, which makes a network filesystem's client look at the names anew."""
    with suppress(OSError):
        probe = os.path.join(directory, f".look-{nonce()}")
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        os.unlink(probe)
