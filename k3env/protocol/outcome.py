"""Outcome: what became of a run; a fold of what nodes sent and of what the controller saw of them, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from k3env.protocol.event import Event
from k3env.protocol.finding import FAIL, UNKNOWN, Finding
from k3env.protocol.host_outcome import HOST_STATUSES, TASK_STATUSES, HostFold, HostOutcome, Live, TaskOutcome
from k3env.protocol.line import FAILED, NOTRUN, UNREACHABLE
from k3env.protocol.plan import Task

__all__ = ("HOST_STATUSES", "TASK_STATUSES", "Fold", "HostOutcome", "Live", "Outcome", "TaskOutcome", "fold")

# Exit codes, as errors.py has them for exceptions; this package imports nothing above it.
_FAILED, _UNKNOWN, _UNREACHABLE, _CHANGES, _INTERRUPTED = 2, 3, 4, 5, 130


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    run: str
    started: str
    """RFC 3339, UTC."""
    duration_s: float = 0.0
    check: bool = False
    hosts: dict[str, HostOutcome] = field(default_factory=dict)
    across: tuple[Finding, ...] = ()
    interrupted: bool = False

    @property
    def simulated(self) -> bool:
        """Whether any host is one of the sandbox."""
        return any(host.simulated for host in self.hosts.values())

    def findings(self) -> Iterable[Finding]:
        """Return all findings of hosts and across them."""
        for host in self.hosts.values():
            for task in host.tasks:
                yield from task.findings
        yield from self.across

    def exit_code(self, detailed: bool = False) -> int:
        """Return the first that holds of 130, 2, 4, 3, 5, and 0 if none does; 5 only where it is asked for.

        A host that was left out although nothing failed was stopped by somebody: that is 130 too, never 0.
        """
        statuses = {host.status for host in self.hosts.values()}
        held = (
            (_INTERRUPTED, self.interrupted),
            (_FAILED, FAILED in statuses or any(item.status == FAIL for item in self.across)),
            (_UNREACHABLE, UNREACHABLE in statuses),
            (_INTERRUPTED, NOTRUN in statuses),
            (_UNKNOWN, any(_unjudged(item) for item in self.findings())),
            (_CHANGES, detailed and any(host.changed for host in self.hosts.values())),
        )
        return next((code for code, holds in held if holds), 0)


class Fold:
    """An outcome in the making. Each event costs the same, however many there were."""

    def __init__(self, run: str, started: str, tasks: Mapping[str, Iterable[Task]], *, check: bool = False) -> None:
        """`tasks` are all tasks of all plays by host; a host without any is targeted all the same."""
        self.run, self.started, self.check = run, started, check
        self.across: tuple[Finding, ...] = ()
        self.interrupted = False
        self._hosts = {name: HostFold(name, mine) for name, mine in tasks.items()}

    @property
    def live(self) -> dict[str, Live]:
        """Return what each host does right now."""
        return {name: host.live for name, host in self._hosts.items()}

    def add(self, host: str, event: Event, arrived: Optional[float] = None) -> None:
        """Take in what a node sent, or what the controller saw of it. The same event twice is the same as once.

        `arrived` is when it came, in seconds since 1970, if it comes straight from the node: that shows clock skew.
        """
        self._hosts[host].add(event, arrived)

    def facts(self, host: str, task: str) -> Mapping[str, Any]:
        """Return the facts that a host told for the checks across nodes of a task."""
        return self._hosts[host].facts.get(task, {})

    def lag_s(self, host: str) -> Optional[float]:
        """Return how far a host's clock is behind ours, plus what the road takes; None where nothing came live."""
        return self._hosts[host].lag_s

    def task(self, host: str, id: str) -> TaskOutcome:
        """Return a task as it is now."""
        return self._hosts[host].seen(id)

    def host(self, name: str) -> HostOutcome:
        """Return a host as it is now."""
        return self._hosts[name].outcome()

    def outcome(self, duration_s: float = 0.0) -> Outcome:
        """Return the run as it is now."""
        hosts = {name: host.outcome() for name, host in self._hosts.items()}
        return Outcome(self.run, self.started, duration_s, self.check, hosts, self.across, self.interrupted)


def fold(
    run: str,
    started: str,
    tasks: Mapping[str, Iterable[Task]],
    events: Iterable[tuple[str, Event]],
    *,
    check: bool = False,
    duration_s: float = 0.0,
    across: tuple[Finding, ...] = (),
    interrupted: bool = False,
) -> Outcome:
    """Return the outcome of a whole record."""
    folding = Fold(run, started, tasks, check=check)
    folding.across, folding.interrupted = across, interrupted
    for host, event in events:
        folding.add(host, event)
    return folding.outcome(duration_s)


def _unjudged(finding: Finding) -> bool:
    return finding.status == UNKNOWN and finding.severity == FAIL
