"""How the GPUs must be set, and who may be on them. The checks are gpu.py's."""

from __future__ import annotations

from collections.abc import Iterable

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._gpu_health import RESET, each
from k3env.node.facts import smi
from k3env.node.facts.gpu_health import Health, Process, Processes, health, processes
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile

BEFORE_A_JOB = ("prolog", "job")


@check("gpu.mig", health, scope="node", severity="fail")
def mig(health: Health, profile: Profile) -> Finding:
    """GPUs are whole: MIG is disabled."""
    if health.gpus and all(smi.is_not_there(gpu.silent.get("mig")) for gpu in health.gpus):
        return skip("these GPUs have no MIG")
    return each(
        health.gpus,
        "mig",
        bool,
        expected="MIG disabled",
        found=lambda _: "enabled",
        remedy=lambda _: "disable it: nvidia-smi -mig 0, then reset the GPUs",
        good="disabled",
    )


@check("gpu.compute_mode", health, scope="node", severity="fail")
def compute_mode(health: Health, profile: Profile) -> Finding:
    """GPUs may be used for computing."""
    return each(
        health.gpus,
        "compute_mode",
        lambda mode: str(mode) == "Prohibited",
        expected="compute mode Default",
        found=str,
        remedy=lambda _: "allow it: nvidia-smi -c DEFAULT",
    )


@check("gpu.exclusive", health, scope="node", severity="warn")
def exclusive(health: Health, profile: Profile) -> Finding:
    """More than one process may use a GPU, as profilers, and the tools that look after it, do."""
    return each(
        health.gpus,
        "compute_mode",
        lambda mode: str(mode).startswith("Exclusive"),
        expected="compute mode Default",
        found=str,
        remedy=lambda _: "share it: nvidia-smi -c DEFAULT",
    )


@check("gpu.procs", processes, scope="node", severity="fail", contexts=BEFORE_A_JOB)
def no_processes(processes: Processes, profile: Profile) -> Finding:
    """Nobody else computes on the GPUs; before a job, nobody at all does."""
    if profile.context == "prolog" and processes.job and (processes.jobs_gpus or 0) < profile.gpu.count:
        return _shared(processes, profile.gpu.count)
    foreign = [item for item in processes.all if _is_foreign(item, processes.uid, profile)]
    if foreign:
        return fail(
            expected="no process of anybody else on the GPUs",
            found=_all(foreign),
            remedy="end them, or let their job end: what a job leaves behind, Slurm's epilog should end",
        )
    hidden = [item for item in processes.all if item.uid is None]
    if hidden:
        return unknown(f"whose these are can't be seen from this pid namespace: {_all(hidden)}")
    return passed("none" if not processes.all else f"{len(processes.all)}, all our own")


@check("gpu.mem_used", health, scope="node", severity="warn", contexts=BEFORE_A_JOB)
def memory_used(health: Health, profile: Profile) -> Finding:
    """The GPUs' memory is free before a job."""
    most = profile.gpu.memory_used_mib
    return each(
        health.gpus,
        "memory_used_mib",
        lambda used: int(used) > most,
        expected=f"at most {most} MiB in use",
        found=lambda used: f"{used} MiB in use",
        remedy=lambda _: f"see gpu.procs; if nobody is there, {RESET}",
        good=f"at most {most} MiB in use",
    )


@check("gpu.persistence", health, scope="node", severity="warn")
def persistence(health: Health, profile: Profile) -> Finding:
    """The driver stays loaded while nobody uses a GPU; else each first use costs seconds."""
    return each(
        health.gpus,
        "persistence",
        lambda on: not on,
        expected="persistence mode enabled",
        found=lambda _: "disabled",
        remedy=lambda _: "enable it: systemctl enable --now nvidia-persistenced",
        good="enabled",
    )


def _shared(processes: Processes, count: int) -> Finding:
    """Judge a node that may be another job's too: a process on a GPU can be where it belongs."""
    if not processes.all:
        return passed("none")
    mine = "GPUs that Slurm does not name" if processes.jobs_gpus is None else f"{processes.jobs_gpus} of {count} GPUs"
    return unknown(f"job {processes.job} has {mine}, so these may be another job's: {_all(processes.all)}")


def _all(items: Iterable[Process]) -> str:
    return "; ".join(map(_process, items))


def _is_foreign(item: Process, uid: int, profile: Profile) -> bool:
    """Return whether a process has no business here. Before a job, nobody has; of one that can't be seen, say no."""
    if profile.context == "prolog":
        return True
    return item.uid is not None and item.uid != uid and item.user != profile.user


def _process(item: Process) -> str:
    who = item.user or "an unknown user"
    return f"pid {item.pid} of {who}{f' ({item.name})' if item.name else ''} on {item.bus_id}"
