"""reduce: from the lines that the nodes of a job printed to one report, with what only all of them together show."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Optional

from k3env.node import across
from k3env.protocol.event import Event, checked, loads
from k3env.protocol.finding import FAIL, Finding
from k3env.protocol.folding import fold as folded
from k3env.protocol.line import END, LINE_BYTES
from k3env.protocol.outcome import Fold, Outcome
from k3env.protocol.plan import Plan
from k3env.protocol.unfolding import unfold

EVENT_SCHEMA = "k3env.event/1"
STEP = "srun --ntasks-per-node=1 k3env-preflight.pyz --output jsonl | k3env-preflight.pyz reduce"


@dataclass
class Heard:
    """What came in on the lines."""

    events: list[tuple[str, Event, Optional[float]]] = field(default_factory=list)
    """Host, event, and when it came, seconds since 1970; None where it was written down before."""
    other: int = 0
    """Lines that are no events: what a shell or srun itself said."""


def expected(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes of the job that we are in; none outside of one.

    Source: sbatch(1), SLURM_JOB_NODELIST.
    """
    return unfold(environment["SLURM_JOB_NODELIST"]) if environment.get("SLURM_JOB_NODELIST") else ()


def hear(stream: IO[bytes]) -> Heard:
    """Read all lines; `srun --label` may have put a number before each.

    A line counts as just sent only where we had to wait for it: what waited for us in the pipe is of unknown age.
    """
    heard = Heard()
    for line, arrived in _lines(stream):
        found = _event(line)
        if found is not None:
            heard.events.append((*found, arrived))
        elif line.strip() and not _is_document(line):
            heard.other += 1
    return heard


def reduce(plan: Plan, heard: Heard, hosts: Iterable[str], started: str) -> Outcome:
    """Judge what was heard of these hosts; with none named, of those that spoke."""
    spoke = dict.fromkeys(host for host, _, _ in heard.events)
    wanted = tuple(dict.fromkeys((*hosts, *spoke)))
    fold = Fold("reduce", started, dict.fromkeys(wanted, plan.tasks))
    ended = set()
    for host, event, arrived in heard.events:
        fold.add(host, event, arrived)
        if event.kind == END:
            ended.add(host)
    fold.across = (_nodes(wanted, spoke, ended), *across.findings(dict.fromkeys(wanted, plan), fold))
    return fold.outcome()


def _nodes(wanted: tuple[str, ...], spoke: Iterable[str], ended: set[str]) -> Finding:
    """Say that every node told all, or name those that did not."""
    silent = [host for host in wanted if host not in set(spoke)]
    cut = [host for host in spoke if host not in ended]
    told = [f"nothing from {folded(silent)}"] if silent else []
    told += [f"no end from {folded(cut)}"] if cut else []
    count = f"all {len(wanted)} nodes" if len(wanted) != 1 else "1 node"
    if not wanted:
        told = ["nothing from any node"]
    if told:
        remedy = f"see srun's own messages for these nodes, and run it on each: {STEP}"
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


def _event(line: bytes) -> Optional[tuple[str, Event]]:
    try:
        value = loads(line[line.index(b"{") :])
        if value.get("schema") != EVENT_SCHEMA or not isinstance(value["host"], str):
            return None
        return value["host"], checked(value)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def _is_document(line: bytes) -> bool:
    return b'"schema":"k3env.run/1"' in line[: 1 << 10]
