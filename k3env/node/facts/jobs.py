"""Slurm jobs on the node: what Slurm's own processes here say, and what its controller knows beyond that."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Optional, Union

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable

CONTROLLER_S = 5.0
"""How long Slurm's controller may take to answer: one that hangs must hold up nobody."""

# "slurmstepd: [812.batch]", "[812.extern]", "[812.0]"; since 23.11 also "slurmstepd infinity", which is no job's.
_STEP = re.compile(r"slurmstepd: \[(?:[^\]]*\D)?(\d+)\.[^\].]+\]")
# cgroup v1: /slurm/uid_1000/job_812/step_0; v2: /system.slice/slurmstepd.scope/job_812/step_extern.
_CGROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)
# Pending jobs have no nodes, and ended ones are gone from them.
_STATES = "CONFIGURING,RUNNING,SUSPENDED,STOPPED,SIGNALING,COMPLETING"
_PLACES = ("/opt/slurm/bin", "/usr/local/bin", "/usr/bin", "/cm/shared/apps/slurm/current/bin")


@dataclass(frozen=True)
class Job:
    """A job that has this node."""

    id: str
    user: Optional[str] = None
    since: Optional[str] = None
    """The node's local time, as Slurm writes it."""
    name: str = ""
    task: str = ""
    """Its number as a task of an array, "800_3"; else empty."""

    def __str__(self) -> str:
        """Return it as a person reads it."""
        words = [f"job {self.task or self.id}", f"of {self.user}" if self.user else "of somebody"]
        words += [f"({self.name})"] if self.name else []
        return " ".join([*words, f"since {self.since}"] if self.since else words)


@dataclass(frozen=True)
class Jobs:
    """The jobs that have this node, whoever's they are."""

    own: Optional[str]
    """The job that this process runs in; None: it runs in none."""
    by_process: tuple[Job, ...]
    """Those with a process here."""
    by_controller: Union[tuple[Job, ...], Unreadable, None]
    """Those that Slurm's controller knows, also without a process; None: no slurmd runs here."""
    source: tuple[Evidence, ...] = ()

    @property
    def all(self) -> tuple[Job, ...]:
        """Each job once, with the most that is known of it."""
        known = self.by_controller if isinstance(self.by_controller, tuple) else ()
        found = {job.id: job for job in (*self.by_process, *known)}
        return tuple(found[id] for id in sorted(found, key=int))


@deadline(CONTROLLER_S + 3.0)
def jobs(machine: Machine) -> Jobs:
    """Read which jobs have this node.

    Source: the titles of slurmstepd processes in /proc, and squeue for this node, where slurmd runs. A node of an
    allocation on which no step has begun has no process; and a controller that does not answer leaves the processes.
    """
    daemons, steps = _daemons(machine)
    found = tuple(_of_steps(machine, steps))
    shown = ", ".join(title for _, title in steps) or "no slurmstepd"
    source = [Evidence("/proc/*/cmdline", None, shown)]
    known: Union[tuple[Job, ...], Unreadable, None] = None
    # With hidepid, nobody but root sees other users' processes, and so none of Slurm.
    if daemons or not machine.exists("/proc/1"):
        known = _asked(machine, daemons, source)
    return Jobs(_own(machine), found, known, tuple(source))


def _own(machine: Machine) -> Optional[str]:
    """Return the job of this process: a step's environment says it, a session that a job has adopted its cgroup."""
    with suppress(OSError):
        found = _CGROUP.search(machine.text("/proc/self/cgroup"))
        if found:
            return found.group(1)
    return machine.environment.get("SLURM_JOB_ID")


def _daemons(machine: Machine) -> tuple[list[str], list[tuple[str, str]]]:
    """Return slurmd's command lines and slurmstepd's titles with their pids."""
    daemons: list[str] = []
    steps: list[tuple[str, str]] = []
    for pid in _pids(machine):
        with suppress(OSError):
            name = machine.text(f"/proc/{pid}/comm").strip()
            if name in ("slurmd", "slurmstepd"):
                words = machine.text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
                if name == "slurmd":
                    daemons.append(words)
                elif _STEP.match(words):
                    steps.append((pid, words))
    return daemons, steps


def _pids(machine: Machine) -> Iterable[str]:
    return (name for name in machine.list("/proc") if name.isdecimal())


def _of_steps(machine: Machine, steps: list[tuple[str, str]]) -> Iterator[Job]:
    children = _children(machine, {pid for pid, _ in steps})
    known: dict[str, list[str]] = {}
    for pid, title in steps:
        found = _STEP.match(title)
        if found:
            known.setdefault(found.group(1), []).append(pid)
    for id, pids in known.items():
        begun = [since for pid in pids if (since := _since(machine, pid)) is not None]
        users = [user for pid in pids for child in children.get(pid, ()) if (user := _user(machine, child))]
        told = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(min(begun))) if begun else None
        yield Job(id, next(iter(users), None), told)


def _children(machine: Machine, parents: set[str]) -> dict[str, list[str]]:
    """Return the pids of these processes' children: a step's daemon is root's, what it started is the user's."""
    children: dict[str, list[str]] = {}
    for pid in _pids(machine) if parents else ():
        with suppress(OSError, IndexError):
            parent = _stat(machine, pid)[1]
            if parent in parents:
                children.setdefault(parent, []).append(pid)
    return children


def _stat(machine: Machine, pid: str) -> list[str]:
    """Return the words of a process's stat after its name: its state, its parent, …"""
    return machine.text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _since(machine: Machine, pid: str) -> Optional[float]:
    """Return when a process began, in seconds since the epoch. Source: proc(5), field 22 of stat, and btime."""
    with suppress(OSError, IndexError, ValueError):
        booted = re.search(r"^btime (\d+)$", machine.text("/proc/stat"), re.MULTILINE)
        if booted:
            return int(booted.group(1)) + int(_stat(machine, pid)[19]) / os.sysconf("SC_CLK_TCK")
    return None


def _user(machine: Machine, pid: str) -> Optional[str]:
    """Return whose a process is, if it is not root's: the extern step's is."""
    import pwd

    with suppress(OSError, AttributeError):
        found = re.search(r"^Uid:\s+(\d+)", machine.text(f"/proc/{pid}/status"), re.MULTILINE)
        uid = int(found.group(1)) if found else 0
        try:
            return pwd.getpwuid(uid).pw_name if uid else None
        except KeyError:
            return f"uid {uid}"
    return None


def _asked(machine: Machine, daemons: list[str], source: list[Evidence]) -> Union[tuple[Job, ...], Unreadable, None]:
    """Ask Slurm's controller which jobs have this node; none is asked where its program is not here either."""
    program = machine.which("squeue") or next(
        (path for place in _PLACES if machine.is_file(path := f"{place}/squeue")), None
    )
    if program is None:
        return Unreadable("squeue is not installed where it is looked for") if daemons else None
    words = (daemons[0] if daemons else "").split()
    configured = {"SLURM_CONF": conf} if (conf := _option(words, "-f")) else {}
    node = _option(words, "-N") or os.uname().nodename.partition(".")[0]
    argv = [program, "--noheader", f"--nodelist={node}", f"--states={_STATES}", "--format=%A|%i|%u|%S|%j"]
    done = machine.run(argv, timeout_s=CONTROLLER_S, environment=configured)
    source.append(done.evidence())
    if done.timed_out:
        return Unreadable(f"squeue gave no answer within {CONTROLLER_S:g} s", done.evidence())
    if not done.ok:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Unreadable(said[-1] if said else f"squeue: exit code {done.exit_code}", done.evidence())
    rows = [line.strip().split("|", 4) for line in done.text.splitlines() if line.strip()]
    return tuple(
        Job(row[0], row[2], row[3], row[4], "" if row[1] == row[0] else row[1]) for row in rows if _is_row(row)
    )


def _is_row(row: list[str]) -> bool:
    return len(row) == 5 and row[0].isdecimal()


def _option(words: list[str], name: str) -> Optional[str]:
    """Return the value of a daemon's option, written as one word or two."""
    for word, following in zip(words, [*words[1:], ""]):
        if word == name:
            return following or None
        if word.startswith(name):
            return word[len(name) :]
    return None
