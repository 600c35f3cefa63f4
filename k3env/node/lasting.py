"""Lasting: what may end work that takes hours before its time, told as it begins; or why it can't be left to itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional

from k3env.node.facts.mounts import NETWORK, Mount, containing, data_mount, mounts
from k3env.node.facts.session import CGROUP, Session, session
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.finding import FAIL, WARN, Evidence, Finding

IN_MEMORY = ("tmpfs", "ramfs", "rootfs")
_EXTERN = "extern"


def look(start: dict[str, Any], state: str) -> list[dict[str, Any]]:
    """Return findings, as JSON, about a run that is to go on when nobody follows it; one that fails refuses it."""
    machine = Machine(overlay=start["overlay"])
    found = list(of_session(session(machine), bool(start.get("detached"))))
    kept = of_state(state, _mount(machine, state))
    encoded: list[dict[str, Any]] = codec.encode([*found, *([kept] if kept else [])])
    return encoded


def of_session(found: Session, detached: bool) -> Iterator[Finding]:
    """Yield what the session means for the work."""
    seen = (Evidence(CGROUP, None, found.cgroup),)
    if found.place.job is not None:
        yield _in_job(found, seen)
    status = FAIL if detached else WARN
    if found.place.scope_of is not None and found.logind.kills(found.user):
        yield Finding(
            "run.killed_at_logout",
            status,
            severity=status,
            message=f"logind ends what {found.user} leaves behind: when the connection is lost, the work ends",
            expected=f"KillUserProcesses=no, or {found.user} among KillExcludeUsers",
            found=found.logind.said_by,
            remedy=f"have an administrator set KillExcludeUsers={found.user} in /etc/systemd/logind.conf, "
            "as lingering alone keeps no session's processes"
            + ("; or leave --detach out" if detached else "; until then, stay connected"),
            evidence=seen,
        )
    elif found.place.scope_of is None and found.place.manager_of is not None and not found.lingers:
        yield Finding(
            "run.killed_at_logout",
            status,
            severity=status,
            message=f"this runs under the service manager of {found.user}, which ends with the last session",
            expected=f"{found.user} lingers",
            found="no lingering",
            remedy=f"loginctl enable-linger {found.user}",
            evidence=seen,
        )


def _in_job(found: Session, seen: tuple[Evidence, ...]) -> Finding:
    job, step = found.place.job, found.place.step
    if step in (None, _EXTERN):
        message = (
            f"this session is part of Slurm job {job}: the work ends with the job, and has its CPUs and memory only"
        )
    else:
        message = (
            f"this is step {step} of Slurm job {job}: the work ends with the step, and has its CPUs and memory only"
        )
    return Finding(
        "run.in_job",
        WARN,
        severity=WARN,
        message=message,
        expected="for long work, a job that outlasts it",
        found=f"job {job}",
        remedy=f"see how long it lasts: squeue -j {job} -o %L",
        evidence=seen,
    )


def of_state(path: str, mount: Optional[Mount]) -> Optional[Finding]:
    """Return what it means where the state directory lies, or None; `mount` is None where that can't be seen."""
    if mount is None:
        return None
    on = f"{path} on {mount.fstype}, mounted at {mount.point}"
    if mount.fstype in IN_MEMORY:
        message = "the state directory lies in memory: after a reboot, nothing tells how this run ended"
        expected = "a directory on a disk"
    elif mount.kind == NETWORK:
        message = "the state directory lies on a network filesystem: when its server stalls, this run does"
        expected = "a directory of the node itself"
    else:
        return None
    return Finding(
        "run.state_dir",
        WARN,
        severity=WARN,
        message=message,
        expected=expected,
        found=on,
        remedy="set k3env_state_dir to one on a disk of the node, such as /var/lib/k3env",
    )


def _mount(machine: Machine, path: str) -> Optional[Mount]:
    """Return where a directory's data lies. A simulated node's own directories lie wherever the sandbox does."""
    if machine.overlay is not None and not os.path.exists(f"{machine.overlay}/proc/self/mountinfo"):
        return None
    try:
        table = mounts(machine)
        return data_mount(table, containing(table, os.path.realpath(path)), machine)
    except (OSError, ValueError):
        return None
