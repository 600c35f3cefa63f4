"""Slurm: the hosts of a partition, of a job, of the job that we run in.

Sources: the manuals of sinfo, squeue and scontrol, and what 22.05 prints: sinfo says nothing, with exit code 0, about
a partition that is not there; squeue fails for an unknown job and prints no line for one that has ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Optional

from k3env.errors import InventoryError, nearest
from k3env.inventory.commands import Said, ask
from k3env.inventory.hosts import valid_name
from k3env.inventory.nodesets import MAX_HOSTS, BadNodeSet, expand, is_nodeset

PREFIX = "slurm:"
NODELIST = "SLURM_JOB_NODELIST"
TIMEOUT_S = 20.0
"""A controller that does not answer is given up by Slurm's own programs after about ten seconds."""

_JOB = re.compile(r"[0-9]+(_[0-9]+)?(\+[0-9]+)?")
_PARTITION = re.compile(r"[A-Za-z0-9_.-]+")
_EXPECTED = "slurm:PARTITION or slurm:job:ID"


def allocation() -> Optional[str]:
    """Return the node list of the job that we run in, or None outside of jobs."""
    return os.environ.get(NODELIST) or None


def hosts(term: str) -> list[str]:
    """Return the hosts that `slurm:PARTITION` or `slurm:job:ID` means.

    Raises InventoryError where Slurm does not know it, is not here, or does not answer.
    """
    kind, _, rest = term.removeprefix(PREFIX).partition(":")
    if kind == "job" and _JOB.fullmatch(rest):
        return _of_job(term, rest)
    if rest or not _PARTITION.fullmatch(kind) or kind == "job":
        raise InventoryError(f"{term} can't be read", subject=term, expected=_EXPECTED, found=term)
    return _of_partition(term, kind)


def expanded(nodelist: str, source: str) -> list[str]:
    """Return the names of a list as Slurm writes it; Slurm itself is asked about what is no node set here.

    Raises InventoryError.
    """
    try:
        names = [name for part in _parts(nodelist) for name in (expand(part) if is_nodeset(part) else [part])]
    except BadNodeSet:
        names = _lines(_said(source, ["scontrol", "show", "hostnames", nodelist]))
    return _checked(names, nodelist, source)


def _of_partition(term: str, name: str) -> list[str]:
    names = _lines(_said(term, ["sinfo", "--noheader", "--Node", "--format=%N", f"--partition={name}"]))
    if names:
        return _checked(names, term, term)
    known = _lines(_said(term, ["sinfo", "--noheader", "--format=%R"]))
    meant = nearest(name, known)
    raise InventoryError(
        f"Slurm has no nodes in a partition {name}",
        subject=term,
        expected="one of " + ", ".join(known) if known else "a partition",
        found=name,
        remedy=f"did you mean {PREFIX}{meant}?" if meant and meant != name else "see: sinfo",
    )


def _of_job(term: str, job: str) -> list[str]:
    lines = _lines(_said(term, ["squeue", "--noheader", "--format=%T|%N", f"--jobs={job}"]))
    states = sorted({line.partition("|")[0] for line in lines})
    names = [name for line in lines if (nodes := line.partition("|")[2]) for name in expanded(nodes, term)]
    if names:
        return list(dict.fromkeys(names))
    raise InventoryError(
        f"the job {job} has no nodes",
        subject=term,
        expected="a running job",
        found=", ".join(states).lower() or "a job that has ended",
        remedy="see: squeue --me",
    )


def _said(term: str, argv: Sequence[str]) -> Said:
    try:
        said = ask(argv, TIMEOUT_S)
    except OSError as error:
        raise InventoryError(
            f"{argv[0]} can't be run: {error.strerror}",
            subject=term,
            expected="Slurm's programs in PATH",
            found="no Slurm",
            remedy="run this on a login node, or name the hosts",
        ) from None
    if said.timed_out or said.too_much:
        found = f"no answer within {TIMEOUT_S:g} s" if said.timed_out else "output without end"
        raise InventoryError(
            f"{argv[0]} does not answer",
            subject=term,
            expected="an answer of Slurm's controller",
            found=found,
            remedy="see: scontrol ping",
            evidence=(said.evidence(),),
        )
    if said.exit_code:
        words = said.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InventoryError(
            f"Slurm does not know {term}",
            subject=term,
            expected=_EXPECTED,
            found=words[-1] if words else f"exit code {said.exit_code}",
            remedy="see: scontrol ping, sinfo, squeue",
            evidence=(said.evidence(),),
        )
    return said


def _lines(said: Said) -> list[str]:
    lines = said.stdout.decode("utf-8", "replace").splitlines()
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _checked(names: Sequence[str], found: str, source: str) -> list[str]:
    """Refuse names that can't be those of hosts, and more than can be handled."""
    bad = next((name for name in names if not valid_name(name)), None)
    if bad is not None or not names or len(names) > MAX_HOSTS:
        raise InventoryError(
            f"Slurm's answer can't be read: {bad or found}"[:200],
            subject=source,
            expected=f"1 to {MAX_HOSTS} host names",
            found=found[:200],
        )
    return list(dict.fromkeys(names))


def _parts(nodelist: str) -> list[str]:
    """Split at the commas outside brackets."""
    return re.findall(r"(?:[^,\[\]]|\[[^\]]*\]?|\])+", nodelist)
