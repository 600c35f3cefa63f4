"""reduce: from the lines that the nodes of a job printed to one report, with what only all of them together show."""

from __future__ import annotations

import os
import re
import select
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Optional

from k3env.errors import UsageError
from k3env.node import across
from k3env.protocol.context import STEP
from k3env.protocol.event import Event, checked, loads
from k3env.protocol.finding import FAIL, Finding
from k3env.protocol.folding import fold as folded
from k3env.protocol.line import END, FAILED, LINE_BYTES, RESULT
from k3env.protocol.outcome import Fold, Outcome
from k3env.protocol.plan import Plan
from k3env.protocol.unfolding import unfold

EVENTS = "k3env.event/"
EVENT_SCHEMA = f"{EVENTS}1"
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}")
"""What a node may be called: hostname(7), and an address. Its name goes to a terminal, and into node sets."""
PIPE = f"{STEP} --output jsonl | k3env-preflight.pyz reduce"


@dataclass
class Heard:
    """What came in on the lines."""

    events: list[tuple[str, Event, Optional[float]]] = field(default_factory=list)
    """Host, event, and when it came, seconds since 1970; None where it was written down before."""
    other: int = 0
    """Lines that are no events: what a shell or srun itself said."""
    foreign: dict[str, None] = field(default_factory=dict)
    """Hosts that sent lines of ours that this version can't read."""
    nameless: int = 0
    """Lines of ours whose host has no name that a node can have."""


def expected(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes of the job that we are in; none outside of one.

    Source: sbatch(1), SLURM_JOB_NODELIST. Raises UsageError for a value that Slurm would not write.
    """
    told = environment.get("SLURM_JOB_NODELIST")
    try:
        return unfold(told) if told else ()
    except ValueError as error:
        raise UsageError(
            f"SLURM_JOB_NODELIST: {error}",
            expected="the nodes of the job, as Slurm writes them",
            found=str(told)[:80],
            remedy="unset it to judge the nodes that have spoken",
        ) from None


def hear(stream: IO[bytes]) -> Heard:
    """Read all lines; `srun --label` may have put a number before each.

    A line counts as just sent only where we had to wait for it: what waited for us in the pipe is of unknown age.
    """
    heard = Heard()
    for line, arrived in _lines(stream):
        said = _said(line)
        if said is not None:
            host, found = said
            if not _HOST.fullmatch(host):
                heard.nameless += 1
            elif found is None:
                heard.foreign[host] = None
            else:
                heard.events.append((host, found, arrived))
        elif line.strip() and not _is_document(line):
            heard.other += 1
    return heard


def reduce(plan: Plan, heard: Heard, hosts: Iterable[str], started: str) -> Outcome:
    """Judge what was heard of these hosts; with none named, of those that spoke."""
    spoke = dict.fromkeys((*(host for host, _, _ in heard.events), *heard.foreign))
    wanted = tuple(dict.fromkeys((*hosts, *spoke)))
    fold = Fold("reduce", started, dict.fromkeys(wanted, plan.tasks))
    ended = set()
    twins: dict[str, None] = {}
    first: dict[tuple[str, int], Event] = {}
    for host, found, arrived in heard.events:
        if first.setdefault((host, found.seq), found) != found:
            # Another node, or task, of this name. Whichever is told last would hide what the first has found.
            twins[host] = None
            if _failed(first[host, found.seq]):
                continue
            first[host, found.seq] = found
        fold.add(host, found, arrived)
        if found.kind == END:
            ended.add(host)
    fold.across = (_nodes(wanted, spoke, ended, twins, heard), *across.findings(dict.fromkeys(wanted, plan), fold))
    return fold.outcome()


def _failed(event: Event) -> bool:
    return event.kind == RESULT and event.data.get("status") == FAILED


def _nodes(
    wanted: tuple[str, ...], spoke: Iterable[str], ended: set[str], twins: Iterable[str], lines: Heard
) -> Finding:
    """Say that every node told all, once, or name those that did not."""
    heard, foreign = set(spoke), lines.foreign
    silent = [host for host in wanted if host not in heard]
    cut = [host for host in spoke if host not in ended and host not in foreign]
    told = [f"nothing from {folded(silent)}"] if silent else []
    told += [f"no end from {folded(cut)}"] if cut else []
    told += [f"lines of another version of k3env from {folded(foreign)}"] if foreign else []
    told += [f"{lines.nameless} lines of what has no name that a node can have"] if lines.nameless else []
    told += [f"several nodes, or tasks, that call themselves {folded(twins)}"] if twins else []
    count = f"all {len(wanted)} nodes" if len(wanted) != 1 else "1 node"
    if not wanted:
        told = ["nothing from any node"]
    if told:
        remedy = f"see srun's own messages for these nodes, and run it once on each, the same file: {PIPE}"
        return Finding("across.nodes", FAIL, "fail", "across", expected=count, found="; ".join(told), remedy=remedy)
    return Finding("across.nodes", "pass", "fail", "across", found=count)


def _lines(stream: IO[bytes]) -> Iterator[tuple[bytes, Optional[float]]]:
    live = stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    pending = b""
    while True:
        waited = live and not select.select([stream], [], [], 0)[0]
        data = os.read(stream.fileno(), 1 << 16)
        arrived = time.time() if waited else None
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            yield line, arrived
        if not data or len(pending) > 4 * LINE_BYTES:
            if pending:
                yield pending[:LINE_BYTES], None
            pending = b""
        if not data:
            return


def _said(line: bytes) -> Optional[tuple[str, Optional[Event]]]:
    """Return who said an event, and which; None of it: one that we can't read. None: it is none of ours."""
    try:
        value = loads(line[line.index(b"{") :])
        host = value["host"]
        if not str(value["schema"]).startswith(EVENTS) or not isinstance(host, str):
            return None
    except (ValueError, KeyError, TypeError):
        return None
    try:
        return host, checked(value) if value["schema"] == EVENT_SCHEMA else None
    except (ValueError, TypeError):
        return host, None


def _is_document(line: bytes) -> bool:
    return b'"schema":"k3env.run/1"' in line[: 1 << 10]
