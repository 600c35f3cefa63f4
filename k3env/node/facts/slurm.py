"""Slurm as this process meets it: commands, the job around it, the node's own state, private directories."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

from k3env.node.facts import deadline
from k3env.node.facts.slurm_config import Config, config, lines
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

if TYPE_CHECKING:
    from k3env.node.process import Completed

ANSWER_S = 5.0
"""A command of Slurm's that has not answered after this many seconds waits for a controller."""
NO_SLURM = "no Slurm on this machine"
PYXIS = "spank_pyxis.so"

_JOB = "SLURM_JOB_ID"
_SEGMENTS = ("SLURM_SEGMENT_SIZE", "SBATCH_SEGMENT_SIZE", "SALLOC_SEGMENT_SIZE")
_PLUGINS = ("/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm", "/usr/lib/{machine}-linux-gnu/slurm-wlm")


@dataclass(frozen=True)
class Tools:
    """What srun offers here."""

    srun: Optional[str]
    """Its path; None: not in PATH."""
    expected: bool
    """Whether this machine has to do with Slurm at all: a configuration, or a job around this process."""
    mpi: Union[tuple[str, ...], Unreadable] = ()
    """Kinds of MPI that srun can start: "pmix", "pmi2"."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Shape:
    """The job around this process, by what Slurm says to it."""

    job: Optional[str]
    """None: no job."""
    node: Optional[int] = None
    """Number of this node in the step; None: Slurm does not say."""
    nodes: Optional[int] = None
    tasks: Optional[int] = None
    per_node: tuple[int, ...] = ()
    """Tasks on each node, where Slurm says that."""
    gpus: Optional[int] = None
    """GPUs on this node; None: Slurm does not say."""
    segment: Optional[int] = None
    """Nodes that --segment keeps in one block; None: Slurm does not say."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Private:
    """Whether each job gets directories of its own in place of the node's."""

    plugin: Optional[str]
    """"job_container/tmpfs"; None: no, or nothing was found that says so."""
    directories: tuple[str, ...] = ()
    configured: bool = False
    """Whether a slurm.conf was found at all."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Node:
    """This node as its controller sees it."""

    name: str
    state: Optional[str]
    """"IDLE+DRAIN"; None: no Slurm here."""
    reason: str = ""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Munge:
    """Whether a credential made here is believed here."""

    installed: bool
    works: bool = False
    reason: str = ""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Pyxis:
    """The plugin that gives srun its --container options."""

    expected: bool
    """Whether this machine has to do with Slurm at all."""
    line: Optional[str] = None
    """Of the plugin stack; None: not in it."""
    missing: Optional[str] = None
    """Its path, where nothing is there."""
    offered: Union[bool, Unreadable] = False
    """Whether srun has --container-image."""
    source: tuple[Evidence, ...] = ()


@deadline(ANSWER_S + 1)
def tools(machine: Machine) -> Tools:
    """Ask srun which kinds of MPI it can start.

    Source: `srun --mpi=list`, which prints one a line, on either stream by its version. It refuses a directory that is
    gone, so it starts in the root.
    """
    srun = machine.which("srun")
    expected = _expected(machine)
    if srun is None or not expected:
        return Tools(srun, expected, source=(Evidence("srun", excerpt=srun or "not in PATH"),))
    done = machine.run(("srun", "--mpi=list"), timeout_s=ANSWER_S, cwd="/")
    said = f"{done.text}\n{done.stderr.decode('utf-8', 'replace')}"
    evidence = (done.evidence(),)
    if not done.ok or not re.search(r"MPI (plugin )?types are", said):
        return Tools(srun, True, Unreadable(_silent(done), evidence[0]), evidence)
    kinds = [line.strip() for line in said.splitlines() if re.fullmatch(r"(?:srun: )?\s*\w+", line)]
    return Tools(srun, True, tuple(kind.replace("srun: ", "").strip() for kind in kinds), evidence)


@deadline(1.0)
def shape(machine: Machine) -> Shape:
    """Read the job's shape from what Slurm sets for its processes. Source: srun(1) and sbatch(1), environment."""
    known = machine.environment
    if _JOB not in known:
        return Shape(None)
    names = (
        *("SLURM_NODEID", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"),
        *("SLURM_NTASKS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", *_SEGMENTS),
    )
    told = "\n".join(f"{name}={known[name]}" for name in (_JOB, *names) if name in known)
    nodes = _number(known, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    per_node = _per_node(known.get("SLURM_TASKS_PER_NODE", ""))
    tasks = _number(known, "SLURM_NTASKS")
    each = _number(known, "SLURM_NTASKS_PER_NODE")
    if tasks is None and nodes is not None and each is not None:
        tasks, per_node = nodes * each, (each,) * nodes
    return Shape(
        known[_JOB],
        _number(known, "SLURM_NODEID"),
        nodes,
        tasks,
        per_node,
        _gpus(known),
        _number(known, *_SEGMENTS),
        (Evidence("environment", excerpt=excerpt(told.encode())),),
    )


@deadline(2.0)
def private(machine: Machine) -> Private:
    """Read whether jobs get a /tmp and a /dev/shm of their own, gone at their end.

    Source: JobContainerType or NamespaceType in slurm.conf; Dirs in job_container.conf or namespace.yaml.
    """
    found = config(machine)
    if found is None:
        return Private(None, source=(Evidence("slurm.conf", excerpt="no such file"),))
    plugin = found.get("NamespaceType") or found.get("JobContainerType")
    told = [Evidence(found.path, excerpt=f"plugin for private directories: {plugin or 'none'}")]
    if plugin.partition("/")[2] != "tmpfs":
        return Private(None, configured=True, source=tuple(told))
    directories = ("/tmp", "/dev/shm")  # noqa: S108 - job_container.conf(5): the default of Dirs
    for name in ("job_container.conf", "namespace.yaml"):
        path = found.beside(name)
        if not machine.is_file(path):
            continue
        text = machine.text(path)
        told.append(Evidence(path, excerpt=excerpt(text.encode())))
        bare = re.sub(r"#.*", "", text)
        dirs = re.search(r"(?<!\w)dirs\s*[=:]\s*[\"']?([^\"'\s]+)", bare, re.IGNORECASE)
        if dirs is not None:
            directories = tuple(dirs.group(1).split(","))
    return Private(plugin, directories, True, tuple(told))


@deadline(ANSWER_S + 1)
def node(machine: Machine) -> Union[Node, Unreadable]:
    """Ask the controller for this node's state. Source: `scontrol show node NAME --oneliner`, State= and Reason=."""
    name = machine.environment.get("SLURMD_NODENAME") or machine.text("/proc/sys/kernel/hostname").strip().split(".")[0]
    if not _expected(machine) or machine.which("scontrol") is None:
        return Node(name, None)
    done = machine.run(("scontrol", "show", "node", name, "--oneliner"), timeout_s=ANSWER_S)
    state = re.search(r"\bState=(\S+)", done.text)
    if not done.ok or state is None:
        return Unreadable(_silent(done), done.evidence())
    reason = re.search(r"\bReason=(.*?)(?: \[\S+@\S+\])?(?: \w+=|$)", done.text)
    return Node(name, state.group(1), reason.group(1).strip() if reason else "", (done.evidence(),))


@deadline(ANSWER_S + 1)
def munge(machine: Machine) -> Union[Munge, Unreadable]:
    """Make a credential and have it believed: `munge -n`, then `unmunge`."""
    if not _expected(machine) or machine.which("munge") is None or machine.which("unmunge") is None:
        return Munge(False)
    made = machine.run(("munge", "-n"), timeout_s=ANSWER_S / 2)
    if made.timed_out or made.exit_code is None:
        return Unreadable(_silent(made), made.evidence())
    if not made.ok:
        return Munge(True, False, _said(made), (made.evidence(),))
    # A credential lets its bearer in, so it is not shown.
    told = Evidence("munge -n", made.exit_code)
    read = machine.run(("unmunge",), stdin=made.stdout, timeout_s=ANSWER_S / 2)
    if read.timed_out or read.exit_code is None:
        return Unreadable(_silent(read), Evidence("unmunge", read.exit_code))
    return Munge(True, read.ok, "" if read.ok else _said(read), (told, Evidence("unmunge", read.exit_code)))


@deadline(ANSWER_S + 1)
def pyxis(machine: Machine) -> Pyxis:
    """Look for pyxis in the plugin stack and among srun's options.

    Source: spank(8): "required|optional PLUGIN ARGUMENTS" in the file that PlugStackConfig names; `srun --help`.
    """
    if not _expected(machine):
        return Pyxis(False)
    found = config(machine)
    sources: list[Evidence] = []
    line = _plugin(machine, found, sources)
    missing = _missing(machine, found, line.split()[1]) if line is not None else None
    offered: Union[bool, Unreadable] = False
    if machine.which("srun") is not None:
        done = machine.run(("srun", "--help"), timeout_s=ANSWER_S, cwd="/")
        said = done.stderr.decode("utf-8", "replace")
        about = [text for text in said.splitlines() if "ncompatible" in text or "spank" in text]
        sources.append(Evidence("srun --help", done.exit_code, excerpt("\n".join(about).encode())))
        offered = b"--container-image" in done.stdout
        if not done.ok and not offered:
            offered = Unreadable(_silent(done), sources[-1])
    return Pyxis(True, line, missing, offered, tuple(sources))


def pyxis_in_stack(machine: Machine) -> bool:
    """Return whether the plugin stack names pyxis."""
    return _plugin(machine, config(machine), []) is not None


def _expected(machine: Machine) -> bool:
    return _JOB in machine.environment or config(machine) is not None


def _plugin(machine: Machine, found: Optional[Config], sources: list[Evidence]) -> Optional[str]:
    """Return the plugin stack's line for pyxis."""
    if found is None:
        return None
    path = found.get("PlugStackConfig") or found.beside("plugstack.conf")
    if not machine.is_file(path):
        sources.append(Evidence(path, excerpt="no such file"))
        return None
    rows = [line for line in lines(machine, path) if re.match(r"(required|optional)\s+\S", line)]
    line = next((row for row in rows if row.split()[1].endswith(PYXIS)), None)
    sources.append(Evidence(path, excerpt=line or f"{len(rows)} plugins, none is {PYXIS}"))
    return line


def _missing(machine: Machine, found: Optional[Config], plugin: str) -> Optional[str]:
    """Return the plugin's path if nothing is there; one without a directory is looked for where plugins lie."""
    if os.path.isabs(plugin):
        return None if machine.is_file(plugin) else plugin
    usual = [place.format(machine=machine.architecture()) for place in _PLUGINS]
    directories = found.get("PluginDir").split(":") if found and found.get("PluginDir") else usual
    there = any(machine.is_file(os.path.join(directory, plugin)) for directory in directories)
    return None if there else f"{plugin} in {':'.join(directories)}"


def _silent(done: Completed) -> str:
    what = " ".join(done.argv)
    if done.timed_out or done.exit_code is None:
        return f"{what}: no answer after {done.duration_s:.0f} s"
    return f"{what} ended with {done.exit_code}: {_said(done)}"


def _said(done: Completed) -> str:
    said = excerpt(done.stderr if done.stderr.strip() else done.stdout)
    return said.rpartition("\n")[2] or "it says nothing"


def _number(known: dict[str, str], *names: str) -> Optional[int]:
    words = [known[name] for name in names if known.get(name, "").isdigit()]
    return int(words[0]) if words else None


def _per_node(text: str) -> tuple[int, ...]:
    """Return the tasks of each node: "4(x3),2" are 4, 4, 4 and 2."""
    found: list[int] = []
    for part in text.split(",") if text else []:
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None or int(match.group(2) or 1) > 1 << 16:
            return ()
        found += [int(match.group(1))] * int(match.group(2) or 1)
    return tuple(found)


def _gpus(known: dict[str, str]) -> Optional[int]:
    """Return the GPUs on this node: SLURM_GPUS_ON_NODE, else the number in "gb300:4" of SLURM_GPUS_PER_NODE."""
    number = _number(known, "SLURM_GPUS_ON_NODE")
    if number is not None:
        return number
    parts = [part.rpartition(":")[2] for part in known.get("SLURM_GPUS_PER_NODE", "").split(",")]
    return sum(map(int, parts)) if all(part.isdigit() for part in parts) else None
