"""Judge a plan's checks in the file that runs by itself: each file of checks in a child of its own.

There it is imported, its facts are read, its checks judged: that takes a prolog less time than importing all of them
one after another would. And what breaks in one file of checks hides nothing of the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional, Union

from k3env.node.collector import Reading, collect
from k3env.node.preflight.bundle import Bundle, Entry
from k3env.protocol import codec
from k3env.protocol.context import DEFAULT, severity
from k3env.protocol.finding import SKIP, UNKNOWN, Finding, Unreadable

JUDGE_S = 0.25
"""What a child may take longer than its facts, seconds."""


@dataclass(frozen=True)
class Judged:
    """What came of some checks."""

    findings: tuple[Finding, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """What this node tells for checks across nodes, as JSON."""


def _in_job() -> dict[str, Any]:
    """Return this node's place in a job's step, as Slurm tells it: SLURM_NODEID counts its nodes from 0."""
    import os

    told = {name: os.environ.get(f"SLURM_{name}", "") for name in ("NODEID", "STEP_NUM_NODES", "JOB_ID", "STEP_ID")}
    step = f"{told['JOB_ID']}.{told['STEP_ID']}" if told["JOB_ID"] and told["STEP_ID"] else ""
    counts = [int(text) if text.isdigit() else 0 for text in (told["NODEID"], told["STEP_NUM_NODES"])]
    return {"number": counts[0], "peers": counts[1], "common": step}


@dataclass(frozen=True)
class Judging:
    """How a plan's checks are judged here. What only children need is imported there, all at the same time."""

    bundle: Bundle
    profile: Mapping[str, Any]
    """The JSON of the plan's profile."""
    context: str
    ends: float
    """When facts must be read, on time.monotonic()."""
    compared: bool = False
    """Whether somebody judges across nodes."""
    probe_dir: Optional[str] = None
    """A directory in which the nodes look for each other."""

    def judge(self, patterns: tuple[str, ...], meanwhile: Callable[[], object] = lambda: None) -> Judged:
        """Judge the checks that patterns mean; `meanwhile` is done while children read."""
        files: dict[str, list[str]] = {}
        ids = self.bundle.named(patterns, self.context, across=self.compared)
        for id in ids:
            files.setdefault(id.partition(".")[0], []).append(id)
        ends = self.ends + JUDGE_S
        readings = {name: self._reading(tuple(mine), ends - time.monotonic()) for name, mine in files.items()}
        found: dict[str, Finding] = {}
        facts: dict[str, Any] = {}
        for name, judged in collect(readings, ends, at_once=len(files), meanwhile=meanwhile).items():
            if isinstance(judged, Unreadable):
                judged = Judged(tuple(self._unknown(id, judged.reason) for id in files[name]))
            found.update((item.id, item) for item in judged.findings)
            facts.update(judged.facts)
        return Judged(tuple(found[id] for id in ids if id in found), facts)

    def _reading(self, ids: tuple[str, ...], seconds: float) -> Reading:
        return Reading(lambda ends: self._file(ids), lambda: Judged, seconds)

    def _file(self, ids: tuple[str, ...]) -> Union[Judged, Unreadable]:
        try:
            return self._judged(ids)
        except Exception as error:
            return Unreadable(f"{type(error).__name__}: {error}")

    def _judged(self, ids: tuple[str, ...]) -> Judged:
        from k3env.node.facts import Facts
        from k3env.node.machine import Machine
        from k3env.node.modules.verify import Verify
        from k3env.node.privilege.reader import reader
        from k3env.protocol.profile import Profile

        wanted: Profile = codec.decode(Profile, dict(self.profile))
        paths = replace(wanted.paths, probe_dir=self.probe_dir or wanted.paths.probe_dir)
        profile = replace(wanted, context=self.context, at_rank=self.context == DEFAULT, paths=paths)
        machine, told = Machine(**_in_job()), dict[str, Any]()
        if self.compared:
            machine.on_facts(told.update)
        facts = Facts(machine, profile, self.ends, reader(profile))
        return Judged(Verify(ids).told(facts, machine, profile), told)

    def _unknown(self, id: str, why: str) -> Finding:
        """Return what is said of a check whose child has told nothing."""
        entry: Optional[Entry] = self.bundle.checks.get(id)
        own, scope = (entry.severity, entry.scope) if entry is not None else ("fail", "node")
        status = UNKNOWN if entry is None or entry.runs_in(self.context) else SKIP
        how_much = severity(id, own, self.profile.get("severities", {}))
        return Finding(id, status, how_much, scope, message=f"the checks of this file were not judged: {why}")
