"""What Slurm must be, and how the job must be shaped for Kimi K3."""

from __future__ import annotations

import re
from typing import Optional

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.inside import Inside, inside
from k3env.node.facts.serve import Serve, serve
from k3env.node.facts.slurm import NO_SLURM, Munge, Node, Private, Shape, Tools, munge, node, private, shape, tools
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile

NO_JOB = "no job around this process"

_UNFIT = ("DOWN", "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "POWER", "REBOOT", "UNKNOWN", "INVAL")
_FLAGS = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "%": "POWERING_DOWN", "@": "REBOOT"}


@check("slurm.tools", tools, inside, scope="static", severity="fail", contexts=("job", "login"))
def slurm_tools(tools: Tools, inside: Inside, profile: Profile) -> Finding:
    """Srun is there and starts ranks by PMIx, as TensorRT LLM's guide does."""
    if not tools.expected:
        return skip(NO_SLURM)
    if tools.srun is None and inside.container is not None:
        return skip("in a container, which the job's srun is outside of")
    if tools.srun is None:
        return fail(
            expected="srun in PATH",
            found="no srun",
            remedy="install Slurm's client, or add its bin to PATH",
        )
    if isinstance(tools.mpi, Unreadable):
        return unknown(tools.mpi.reason)
    if not any(kind.startswith("pmix") for kind in tools.mpi):
        return fail(
            expected="pmix in srun --mpi=list",
            found=", ".join(tools.mpi) or "none",
            remedy="install Slurm's PMIx plugin, built with the PMIx of this node",
        )
    return passed(", ".join(tools.mpi))


@check("slurm.shape", shape, serve, scope="static", severity="fail", contexts=("job",))
def slurm_shape(shape: Shape, serve: Optional[Serve], profile: Profile) -> Finding:
    """Nodes times tasks is tensor_parallel_size, a task for each GPU, and all nodes in one segment."""
    if shape.job is None:
        return skip(NO_JOB)
    count, job = profile.gpu.count, profile.job
    wanted = job.ranks if job.ranks is not None or serve is None else serve.ranks
    # In a step of a task a node, as a preflight's own is, Slurm does not tell how many tasks the job will start.
    tasks = None if count > 1 and set(shape.per_node) <= {1} else shape.tasks
    ranks = tasks if tasks is not None or shape.nodes is None else shape.nodes * count
    rows = (
        (f"{count} GPUs a node", count, shape.gpus, f"--gpus-per-node={count}"),
        (f"{job.nodes} nodes", job.nodes, shape.nodes, f"--nodes={job.nodes}"),
        (f"{wanted} ranks, by tensor_parallel_size", wanted, ranks, f"--nodes={-(-(wanted or 0) // count)}"),
    )
    wrong = [
        (text, str(there), option)
        for text, value, there, option in rows
        if value is not None and there is not None and value != there
    ]
    if tasks is not None and set(shape.per_node) != {count}:
        found = ", ".join(map(str, sorted(set(shape.per_node))))
        wrong.append((f"{count} tasks a node", found, f"--ntasks-per-node={count}"))
    if shape.segment is not None and shape.nodes is not None and shape.segment < shape.nodes:
        wrong.append((f"a segment of {shape.nodes} nodes", str(shape.segment), f"--segment={shape.nodes}"))
    if wrong:
        wants, finds, options = (list(dict.fromkeys(column)) for column in zip(*wrong))
        return fail(
            expected=", ".join(wants), found=", ".join(finds), remedy=f"submit the job with {' '.join(options)}"
        )
    if shape.nodes is None or (wanted is not None and ranks is None):
        return unknown("Slurm does not say how many nodes the job has")
    told = f"{shape.nodes} nodes, {ranks} ranks, {'' if shape.gpus is None else shape.gpus} GPUs on this node"
    if wanted is None and shape.gpus is None and tasks is None:
        return skip(f"{shape.nodes} nodes: Slurm tells no tasks and no GPUs, and no tensor_parallel_size is known")
    return passed(told.replace(",  GPUs on this node", ""))


@check("slurm.tmpfs", private, scope="node", severity="info")
def private_tmp(private: Private, profile: Profile) -> Finding:
    """Jobs see the node's own directories, so that caches stay warm from one job to the next."""
    if not private.configured:
        return skip("no slurm.conf on this machine")
    if private.plugin is None:
        return passed("none", "jobs have no private /tmp")
    base = profile.paths.cache_base or ""
    cold = [path for path in private.directories if base == path or base.startswith(path.rstrip("/") + "/")]
    told = f"{private.plugin}: each job has its own {' and '.join(private.directories)}"
    return fail(
        expected="directories that outlive the job",
        found=told,
        remedy=f"set cache_base elsewhere than in {cold[0]}" if cold else "none needed: cache_base is elsewhere",
        message=f"{told}; caches there start cold" if cold else told,
    )


@check("slurm.node", node, scope="node", severity="warn", contexts=("job",))
def node_state(node: Node, profile: Profile) -> Finding:
    """The controller sees this node as fit for jobs."""
    if node.state is None:
        return skip(NO_SLURM)
    plain = node.state.rstrip("".join(_FLAGS))
    words = {*plain.upper().split("+"), *(_FLAGS[flag] for flag in node.state[len(plain) :])}
    bad = sorted(word for word in words if word.startswith(_UNFIT))
    if bad:
        reason = f": {node.reason}" if node.reason else ""
        return fail(
            expected="a node that takes jobs",
            found=f"{node.state}{reason}",
            remedy=f"mend it, then: scontrol update NodeName={node.name} State=RESUME",
        )
    if not re.fullmatch(r"[A-Z_]+", min(words, default="")):
        return unknown(f"scontrol says {node.state!r}")
    return passed(node.state)


@check("slurm.munge", munge, scope="node", severity="fail", contexts=("job", "login"))
def munge_works(munge: Munge, profile: Profile) -> Finding:
    """Munge believes its own credentials: without it no Slurm command works."""
    if not munge.installed:
        return skip(f"{NO_SLURM}, or no munge")
    if not munge.works:
        return fail(
            expected="munge -n | unmunge",
            found=munge.reason,
            remedy="systemctl restart munge; compare /etc/munge/munge.key and the clock with the controller's",
        )
    return passed("munge -n | unmunge")
