"""A node that runs somebody's job is not changed."""

from __future__ import annotations

from k3env.errors import Refused
from k3env.node.facts.jobs import Job, jobs
from k3env.node.machine import Machine
from k3env.protocol.finding import UNKNOWN, Finding, Unreadable

ANY = "*"
"""Every job may run here: --allow-busy."""
ID = "run.busy_node"
_LISTED = 3


def refuse_busy(machine: Machine, allowed: str) -> tuple[Finding, ...]:
    """Look for jobs on this node before it is changed; return what could not be seen.

    `allowed` are numbers of jobs that may run here, with commas between, or `*`. The job that we run in may as well.
    It is the node that looks, not the controller: its own processes need no answer of Slurm's, and its Slurm may be
    one that the controller's machine doesn't belong to.

    Raises Refused with the jobs, whose they are and since when.
    """
    if allowed == ANY:
        return ()
    found = jobs(machine)
    ours = {job for job in (found.own, *allowed.split(",")) if job}
    others = [job for job in found.all if not {job.id, job.task} & ours]
    if others:
        raise _refused(others)
    if isinstance(found.by_controller, Unreadable):
        return (_unknown(found.by_controller),)
    return ()


def _refused(others: list[Job]) -> Refused:
    shown = "; ".join(map(str, others[:_LISTED]))
    more = f"; and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
    return Refused(
        f"this node runs Slurm {shown}{more}",
        expected="no job on a node that is to be changed, but the one that we run in",
        found="one that is not ours" if len(others) == 1 else f"{len(others)} that are not ours",
        remedy="wait for its end, or have it drained: --drain. If it may be disturbed: --allow-busy; if it is yours: "
        f"--hosts slurm:job:{others[0].task or others[0].id}",
        id=ID,
    )


def _unknown(why: Unreadable) -> Finding:
    return Finding(
        ID,
        UNKNOWN,
        severity="warn",
        message="no Slurm job has a process here; whether one has the node without any is unknown",
        expected="an answer of Slurm's controller",
        found=why.reason,
        remedy="see: scontrol ping",
        evidence=(why.evidence,) if why.evidence is not None else (),
    )
